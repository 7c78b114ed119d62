// Fields of the dialogs: label, help, and the sentence of what is wrong with them.
import { repeat } from "../../vendor/lit/directives/repeat.js";
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { closeDialog } from "./app.js";
import { sortedKeys } from "./differences.js";
import { icon } from "./parts.js";

const LABELS = { gpu: "GPUs", cpu: "CPU cores", memory_mb: "Memory in MB", slot: "Slots" };
export const BUILT_IN = Object.keys(LABELS);

export const head = (title) => html`<h2 id="dialog-title" class="text-lg font-semibold wrap-anywhere">${title}</h2>`;

/** Cancel, and the button that Enter presses. */
export const foot = (app, label, extra = nothing) => html`<div class="flex flex-wrap items-center justify-end gap-2 mt-5">
  ${extra}
  <button type="button" class="btn btn-line btn-sm" @click=${() => closeDialog(app)}>Cancel</button>
  <button class="btn btn-primary btn-sm" ?disabled=${app.dialog?.isBusy}>${label}</button>
</div>`;

/** The sentence below a field, or above a form for what belongs to no field. */
export const wrong = (text, id = "") =>
  text
    ? html`<p class="ed-wrong" id=${id} role="alert">${icon("circle-alert", "xs")}<span>${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}</span></p>`
    : nothing;

const ids = (name, help, error) => [help && `h-${name}`, error && `e-${name}`].filter(Boolean).join(" ");

function around({ name, label, help, error, isOptional }, input) {
  return html`<div class="field">
    <label for=${`f-${name}`}>${label}${isOptional ? html` <span class="text-ink-3 font-normal">(optional)</span>` : nothing}</label>
    ${input}${help ? html`<div class="hint" id=${`h-${name}`}>${help}</div>` : nothing}${wrong(error, `e-${name}`)}
  </div>`;
}

export function text(field) {
  const { name, value, help, error, isFirst, mode, list } = field;
  return around(
    field,
    html`<input
      id=${`f-${name}`} name=${name} .value=${value ?? ""} ?autofocus=${isFirst} autocomplete="off" spellcheck="false"
      inputmode=${mode ?? "text"} list=${list ?? nothing} aria-invalid=${error ? "true" : nothing} aria-describedby=${ids(name, help, error) || nothing}
    />`,
  );
}

/** Several lines; of a list each line is one. */
export function lines(field) {
  const { name, value, help, error, rows } = field;
  const words = Array.isArray(value) ? value.join("\n") : (value ?? "");
  return around(
    field,
    html`<textarea id=${`f-${name}`} name=${name} rows=${rows ?? 2} spellcheck="false" .value=${words}
      aria-invalid=${error ? "true" : nothing} aria-describedby=${ids(name, help, error) || nothing}></textarea>`,
  );
}

/** `options` are pairs of value and label. */
export function choice(field) {
  const { name, value, options, help, error } = field;
  return around(
    field,
    html`<select id=${`f-${name}`} name=${name} aria-invalid=${error ? "true" : nothing} aria-describedby=${ids(name, help, error) || nothing} @change=${field.onChange ?? nothing}>
      ${options.map(([key, label]) => html`<option value=${key} ?selected=${key === (value ?? "")}>${label}</option>`)}
    </select>`,
  );
}

export const flag = ({ name, label, value, help, onChange }) => html`<div class="check">
  <input type="checkbox" id=${`f-${name}`} name=${name} .checked=${Boolean(value)} aria-describedby=${help ? `h-${name}` : nothing} @change=${onChange ?? nothing} />
  <div><label for=${`f-${name}`}>${label}</label>${help ? html`<div class="hint text-xs text-ink-3" id=${`h-${name}`}>${help}</div>` : nothing}</div>
</div>`;

export const labelOf = (key) => LABELS[key] ?? key;

/** Amounts per resource key: one field for each of `keys`; names are `prefix.key`. */
export function amounts({ prefix, keys, value, errors, suffix = "", isFirst = false }) {
  // By key: what the user typed stays in its field when another one comes before it.
  return repeat(sortedKeys(keys), (key) => key, (key) =>
    text({
      name: `${prefix}.${key}`,
      label: `${labelOf(key)}${suffix}`,
      value: value[key],
      error: errors[`${prefix}.${key}`],
      mode: "decimal",
      isOptional: key !== "gpu" || suffix !== "",
      isFirst: isFirst && key === "gpu",
    }),
  );
}

/** The amounts that a form gives under `prefix`; an empty field is no key. */
export function amountsFrom(form, prefix) {
  const given = [...form.entries()].filter(([name, one]) => name.startsWith(`${prefix}.`) && one.trim());
  const pairs = given.map(([name, one]) => [name.slice(prefix.length + 1), one.trim()]);
  return Object.fromEntries(pairs.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Lines or words with commas between them as a list. */
export const listFrom = (form, name) =>
  (form.get(name) ?? "").split(/[\n,]/).map((one) => one.trim()).filter(Boolean);

/** The cursor where something has to be changed. */
export function focusWrong(app) {
  app.then((root) => root.querySelector("dialog [aria-invalid=true]")?.focus());
}

/** The sentences of fields of a list, such as `volumes[0]`, at the list. */
export function ofList(errors, name) {
  const own = Object.entries(errors).filter(([path]) => path === name || path.startsWith(`${name}[`));
  return own.map(([, text]) => text).join("; ");
}
