// The dialog of a pool.
import { html } from "../../vendor/lit/lit-html.js";
import { problemsOf } from "./actions.js";
import { closeDialog, edit, select } from "./app.js";
import { PREEMPTION } from "./choices.js";
import { addPool, editPool, newKey, NEW_POOL, poolOf } from "./document.js";
import { amounts, amountsFrom, BUILT_IN, choice, flag, focusWrong, foot, head, lines, listFrom, ofList, text, wrong } from "./fields.js";
import { icon } from "./parts.js";

const KEY = /^[a-z][a-z0-9_.-]{0,62}$/;

export function poolDialog(app) {
  const { key, errors, more = [] } = app.dialog;
  const pool = key ? poolOf(app.doc, key) : NEW_POOL;
  const keys = [...BUILT_IN, ...Object.keys(pool.capacity), ...more];
  const policies = ["", ...app.choices.policies];
  if (pool.dedicated_to && !policies.includes(pool.dedicated_to)) policies.push(pool.dedicated_to);
  return html`<form @submit=${(event) => submit(app, event)} novalidate>
    ${head(key ? `Edit pool ${pool.name}` : "Add pool")} ${wrong(errors.detail)}
    <div class="grid gap-4 mt-4">
      ${text({ name: "name", label: "Name", value: pool.name, error: errors.name, isFirst: true })}
      <fieldset class="grid gap-2" aria-describedby="capacity-help">
        <legend class="font-semibold">Capacity</legend>
        <p class="text-xs text-ink-3" id="capacity-help">Count whole GPUs; shares are set in profiles. An empty field is not counted.</p>
        ${wrong(errors.capacity)}
        <div class="grid grid-cols-2 md:grid-cols-4 gap-3">${amounts({ prefix: "capacity", keys, value: pool.capacity, errors })}</div>
        ${another(app, keys)}
      </fieldset>
      ${lines({ name: "description", label: "Description", value: pool.description, error: errors.description, isOptional: true })}
      <details class="grid gap-4" ?open=${Boolean(key) || Object.keys(errors).length > 0}>
        <summary class="font-semibold cursor-pointer">Who may run here</summary>
        <div class="grid md:grid-cols-2 gap-4 mt-3">
          ${choice({ name: "dedicated_to", label: "Dedicated to", value: pool.dedicated_to, error: errors.dedicated_to, help: "Only this policy and those below it may run here.", options: policies.map((name) => [name, name || "Nobody: open to all policies"]) })}
          ${choice({ name: "preemption", label: "Preemption", value: pool.preemption, error: errors.preemption, help: "Which tasks may preempt others here.", options: [["", "As in the settings"], ...PREEMPTION] })}
          ${lines({ name: "allowed_images", label: "Allowed images", value: pool.allowed_images, error: ofList(errors, "allowed_images"), help: "One per line, such as registry.example.org/team/*; empty: all.", isOptional: true })}
          ${flag({ name: "backfill", label: "Backfill", value: pool.backfill, help: "Smaller tasks may start while earlier ones wait for capacity." })}
        </div>
      </details>
    </div>
    ${foot(app, key ? "Apply to the draft" : "Add pool")}
  </form>`;
}

function another(app, keys) {
  const { isAsking, keyError = "" } = app.dialog;
  if (!isAsking) {
    return html`<div><button type="button" class="btn btn-ghost btn-xs" @click=${() => app.set({ dialog: { ...app.dialog, isAsking: true } })}>${icon("plus", "xs")}Another resource</button></div>`;
  }
  const add = () => {
    const name = document.getElementById("f-new-key").value.trim();
    const problem = keys.includes(name) ? "Is there already" : KEY.test(name) ? "" : "Use small letters, digits, dot, dash, underscore";
    if (problem) return app.set({ dialog: { ...app.dialog, keyError: problem } });
    return app.set({ dialog: { ...app.dialog, isAsking: false, keyError: "", more: [...(app.dialog.more ?? []), name] } });
  };
  const onEnter = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    add();
  };
  return html`<div class="flex items-end gap-2 flex-wrap" @keydown=${onEnter}>
    ${text({ name: "new-key", label: "Name of the resource", value: "", error: keyError, help: "Such as licence or gpu_large." })}
    <button type="button" class="btn btn-line btn-sm" @click=${add}>Add resource</button>
  </div>`;
}

async function submit(app, event) {
  event.preventDefault();
  if (app.dialog.isBusy) return;
  const { key = newKey() } = app.dialog;
  const form = new FormData(event.target);
  const values = {
    name: form.get("name").trim(),
    description: form.get("description").trim(),
    capacity: amountsFrom(form, "capacity"),
    backfill: form.has("backfill"),
    preemption: form.get("preemption"),
    allowed_images: listFrom(form, "allowed_images"),
    dedicated_to: form.get("dedicated_to") || null,
  };
  const isNew = !poolOf(app.doc, key);
  const doc = isNew ? addPool(app.doc, values, key) : editPool(app.doc, key, values);
  await checkAndEdit(app, doc, "pools", key);
  if (!app.dialog) select(app, { pool: key });
}

/** The server validates the document first; errors of this entry are shown at the fields. */
export async function checkAndEdit(app, doc, kind, key) {
  const mine = { ...app.dialog, isBusy: true };
  app.set({ dialog: mine });
  const errors = await problemsOf(app, doc, kind, key);
  if (app.dialog !== mine) return;
  if (Object.keys(errors).length) {
    app.set({ dialog: { ...mine, isBusy: false, errors } });
    focusWrong(app);
    return;
  }
  closeDialog(app);
  edit(app, doc);
  // A new card is at the end of its row, which may be out of sight.
  const card = `.card-k:is([data-pool="${CSS.escape(key)}"], [data-profile="${CSS.escape(key)}"])`;
  app.then((root) => root.querySelector(card)?.scrollIntoView({ block: "nearest", inline: "nearest" }));
}
