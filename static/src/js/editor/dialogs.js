// One dialog at a time, and only after the user asked for it.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { go, overwrite, reset, saveAndGo, takeBoth, takeTheirs } from "./actions.js";
import { closeDialog, edit } from "./app.js";
import { PREEMPTION } from "./choices.js";
import { sentence } from "./differences.js";
import { editSettings } from "./document.js";
import { connectDialog, linkDialog } from "./link-dialogs.js";
import { clash } from "./merge.js";
import { chip, count, icon } from "./parts.js";
import { poolDialog } from "./pool-form.js";
import { previewDialog } from "./preview.js";
import { profileDialog } from "./profile-form.js";
import { choice, flag, foot, head } from "./fields.js";

const DIALOGS = {
  connect: connectDialog,
  link: linkDialog,
  pool: poolDialog,
  profile: profileDialog,
  preview: previewDialog,
  settings: settingsDialog,
  conflict: conflictDialog,
  reset: resetDialog,
  leave: leaveDialog,
};
const WIDE = { conflict: "ed-wide", pool: "ed-wide", profile: "ed-wide", preview: "ed-full" };

export function dialog(app) {
  const { name } = app.dialog ?? {};
  if (!name) return nothing;
  return html`<dialog
    class=${`dialog ${WIDE[name] ?? ""}`}
    aria-labelledby="dialog-title"
    @close=${(event) => !event.target.open && app.dialog && closeDialog(app)}
    @cancel=${() => closeDialog(app)}
  >${DIALOGS[name](app)}</dialog>`;
}

/** After rendering: what was asked for is shown, modal, with the focus in it. */
export function showDialog(root) {
  const element = root.querySelector("dialog");
  if (element && !element.open) element.showModal();
}

// --- settings --------------------------------------------------------------------------------

function settingsDialog(app) {
  const { settings } = app.doc;
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const values = { consolidation: given.has("consolidation") };
    for (const name of ["queueing", "over_quota", "preemption"]) values[name] = given.get(name);
    closeDialog(app);
    edit(app, editSettings(app.doc, values));
  };
  return html`<form @submit=${submit}>
    ${head("Settings of the whole configuration")}
    <div class="grid gap-4 mt-4">
      ${choice({ name: "queueing", label: "Queueing", value: settings.queueing, help: "Of all policies; a single policy can be set to be strict.", options: [["best_effort", "Later tasks may pass one that has to wait"], ["strict", "No task starts before an earlier one of its policy"]] })}
      ${choice({ name: "over_quota", label: "Over quota", value: settings.over_quota, help: "How capacity beyond the reservations is shared out.", options: [["priority", "By order of policies and priority"], ["fair_share", "By fair shares"]] })}
      ${choice({ name: "preemption", label: "Preemption", value: settings.preemption, help: "Which tasks may preempt running ones; a pool can differ.", options: PREEMPTION })}
      ${flag({ name: "consolidation", label: "Consolidation", value: settings.consolidation, help: "Running tasks may be moved to free capacity on one node." })}
    </div>
    ${foot(app, "Apply to the draft")}
  </form>`;
}

// --- what throws something away --------------------------------------------------------------

const button = (kind, label, step) => html`<button type="button" class=${`btn btn-sm btn-${kind}`} @click=${step}>${label}</button>`;

function resetDialog(app) {
  return html`${head("Reset the draft?")}
    <p class="text-ink-2 mt-2">
      The draft becomes what is live. ${count(app.changes.length, "change")}, saved and unsaved, of everybody, will be gone.
      Running and waiting tasks are not touched.
    </p>
    <div class="flex flex-wrap justify-end gap-2 mt-4">
      ${button("line", "Cancel", () => closeDialog(app))} ${button("danger", "Reset the draft", () => reset(app))}
    </div>`;
}

function leaveDialog(app) {
  const { href } = app.dialog;
  return html`${head("Leave without saving?")}
    <p class="text-ink-2 mt-2">Your changes are only in this page. Save them to go on later or on another machine.</p>
    <div class="flex flex-wrap justify-end gap-2 mt-4">
      ${button("line", "Cancel", () => closeDialog(app))} ${button("danger", "Leave, discard changes", () => go(app, href))}
      ${button("primary", "Save and leave", () => saveAndGo(app, href))}
    </div>`;
}

function conflictDialog(app) {
  const { detail, state, changes } = app.dialog;
  const [theirs, ours] = changes;
  return html`${head(`${state.saved_by ?? "Another user"} saved first`)}
    <p class="text-ink-2 mt-2">${detail} Your changes are kept here, not saved.</p>
    <div class="grid gap-3 mt-3 max-h-[44vh] overflow-y-auto" tabindex="0" role="group" aria-label="Changes of both">
      ${side(`Saved by ${state.saved_by ?? "another user"}`, theirs, ours)} ${side("Yours", ours, theirs)}
    </div>
    <div class="flex flex-wrap justify-end gap-2 mt-4">
      ${button("ghost", "Take theirs, discard mine", () => takeTheirs(app))}
      ${button("line", "Overwrite theirs", () => overwrite(app))}
      ${button("primary", "Put both together", () => takeBoth(app))}
    </div>
    <p class="text-xs text-ink-3 mt-2">Put together, yours counts where it says Both; nothing is saved before you look.</p>`;
}

function side(title, changes, others) {
  return html`<section>
    <h3 class="font-semibold">${title}</h3>
    ${
      changes.length
        ? html`<ul class="mt-1 grid gap-1.5 text-xs">
            ${changes.map((one) => html`<li class="flex gap-2">${others.some((other) => clash(one, other)) ? chip("warn", "Both") : chip("ok", "Fits", "check")}<span class="min-w-0 wrap-anywhere">${sentence(one)}</span></li>`)}
          </ul>`
        : html`<p class="text-xs text-ink-3">No difference to what you read.</p>`
    }
  </section>`;
}
