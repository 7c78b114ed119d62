// The head of the page: mode and view, and the amber bar that says what is not live yet.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { leave, preview, save, validate } from "./actions.js";
import { openDialog } from "./app.js";
import { sentence } from "./differences.js";
import { chip, count, glyph, icon } from "./parts.js";

export function head(app) {
  const view = (name, sign, label) => html`<button
    type="button"
    aria-pressed=${app.view === name}
    @click=${() => show(app, name)}
  >${icon(sign, "sm")}${label}</button>`;
  const away = (href, sign, label) =>
    html`<a href=${href} @click=${(event) => onLeave(app, event)}>${icon(sign, "sm")}${label}</a>`;
  return html`<div class="ed-head">
    <p class="text-lg font-semibold max-md:sr-only" aria-hidden="true">Resource configuration</p>
    <nav class="seg" aria-label="Mode">
      ${away(app.urls.exit, "radio", "Provisioned")}<a href="?" aria-current="page" @click=${(event) => event.preventDefault()}>${icon("pencil", "sm")}Editor</a>
    </nav>
    <div class="seg" role="group" aria-label="View">
      ${view("board", "workflow", "Board")} ${view("matrix", "table-2", "Matrix")}
      ${away(app.urls.history, "history", "History")}
    </div>
    <button type="button" class="btn btn-ghost btn-sm md:ml-auto" @click=${() => openDialog(app, "settings")}>
      ${icon("sliders-horizontal", "sm")}Settings
    </button>
    <a class="btn btn-ghost btn-sm" href=${app.urls.yaml} @click=${(event) => onLeave(app, event)}>${icon("file-code-2", "sm")}YAML</a>
    <a class="btn btn-line btn-sm" href=${app.urls.exit} @click=${(event) => onLeave(app, event)}>${icon("log-out", "sm")}Exit</a>
  </div>`;
}

function onLeave(app, event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  leave(app, event.currentTarget.href);
}

/** The address says which view it is, so that it can be linked and reloaded. */
export function show(app, view) {
  history.replaceState(null, "", view === "matrix" ? "?view=matrix" : "?view=board");
  app.set({ view });
}

export function draftBar(app) {
  const changes = app.changes;
  const button = (name, sign, label, step, isOff, extra = nothing) => html`<button
    type="button"
    class="btn btn-line btn-sm"
    ?disabled=${isOff || app.busy !== ""}
    @click=${step}
  >${icon(app.busy === name ? "loader-circle" : sign, "sm")}${label}${extra}</button>`;
  return html`<section class="ed-bar" aria-label="Draft">
    <span class="tag-draft">DRAFT</span>
    <button
      type="button"
      class="inline-flex items-center gap-1 font-semibold text-ink min-h-6"
      popovertarget="change-list"
      id="change-button"
    >${count(changes.length, "change")}${icon("chevron-down", "xs")}</button>
    ${changeList(app, changes)}
    ${toast(app)} ${app.toast ? nothing : html`<span class="text-ink-2">${draftStatus(app)}</span>`}
    <span class="md:ml-auto flex flex-wrap items-center gap-2">
      <button type="button" class="btn btn-ghost btn-sm" ?disabled=${app.busy !== "" || (!changes.length && !app.isDirty)} @click=${() => openDialog(app, "reset")}>
        ${icon("rotate-ccw", "sm")}Reset…
      </button>
      ${button("save", "save", "Save", () => save(app), !app.isDirty)}
      ${button("validate", "list-checks", "Validate", () => validate(app), false, findingsChip(app))}
      ${button("preview", "eye", "Preview", () => preview(app), false)}
      <button
        type="button"
        class="btn btn-primary btn-sm"
        ?disabled=${app.isDirty || app.busy !== "" || !changes.length}
        title=${app.isDirty ? "Save first: only what is saved can be provisioned." : ""}
        @click=${() => preview(app, { isProvision: true })}
      >${icon("circle-arrow-up", "sm")}Provision…</button>
    </span>
  </section>`;
}

/** A message in the bar of the draft, with undo where that is possible. */
function toast(app) {
  const { text, undo, isError } = app.toast ?? {};
  return html`<div class="min-w-0" role="status" aria-live="polite">
    ${
      text
        ? html`<div class="toast-line">
            ${icon(isError ? "circle-alert" : "check", "sm")}<span class="min-w-0 wrap-anywhere">${text}</span>
            ${undo ? html`<button type="button" class="ml-auto font-semibold underline underline-offset-2" @click=${undo}>Undo</button>` : nothing}
            <button type="button" class="iconbtn" aria-label="Dismiss" @click=${() => app.set({ toast: null })}>${icon("x", "sm")}</button>
          </div>`
        : nothing
    }
  </div>`;
}

function draftStatus(app) {
  const base = app.revision ? `compared with revision ${app.revision}, which is live. ` : "";
  if (app.latest !== app.version) return `${base}${app.savedBy ?? "Another user"} saved the draft meanwhile; you will be asked.`;
  if (app.isDirty) return `${base}Not saved yet.`;
  if (!app.changes.length) return `${base}Nothing differs from what is live.`;
  return html`${base}Not live until you provision.${app.savedAt ? html` Saved ${when(app)} by ${app.savedBy === app.me ? "you" : (app.savedBy ?? "the system")}.` : nothing}`;
}

function when(app) {
  const at = new Date(app.savedAt);
  const isToday = at.toDateString() === new Date().toDateString();
  const zone = document.documentElement.dataset.timeZone;
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: knownZone(zone) });
  return html`<time datetime=${app.savedAt} title=${at.toString()}>${isToday ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${time}`}</time>`;
}

function knownZone(zone) {
  try {
    return zone ? new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone : undefined;
  } catch {
    return undefined;
  }
}

function findingsChip(app) {
  if (!app.findings) return nothing;
  const errors = app.findings.filter((one) => one.isError).length;
  const warnings = app.findings.length - errors;
  if (errors) return chip("bad", count(errors, "error"));
  return warnings ? chip("warn", count(warnings, "warning")) : chip("ok", "no errors");
}

/** Findings that concern the whole, not one card. */
export function generalFindings(app) {
  const general = (app.findings ?? []).filter((one) => !one.key);
  if (!general.length) return nothing;
  return html`<div class="grid gap-2 px-4 md:px-5 pt-3">
    ${general.map(
      (one) => html`<div class=${`callout k-${one.isError ? "bad" : "warn"}`}>${icon(one.isError ? "circle-alert" : "triangle-alert", "sm")}<p>${one.detail}</p></div>`,
    )}
  </div>`;
}

function changeList(app, changes) {
  const place = (event) => {
    if (event.newState !== "open") return;
    const at = document.getElementById("change-button").getBoundingClientRect();
    event.target.style.top = `${at.bottom + 6}px`;
    event.target.style.left = `${Math.max(8, Math.min(at.left, innerWidth - 448))}px`;
  };
  return html`<div id="change-list" popover class="ed-changes" @beforetoggle=${place}>
    <h2 class="font-semibold px-4 py-3 border-b border-line">What provisioning would change</h2>
    ${
      changes.length
        ? html`<ul class="px-4 py-2 grid gap-2">${changes.map((one) => html`<li class="flex gap-2">${glyph(one.kind)}<span class="min-w-0 wrap-anywhere">${sentence(one)}</span></li>`)}</ul>`
        : html`<p class="px-4 py-3 text-ink-3">No changes: the draft equals the live configuration.</p>`
    }
  </div>`;
}
