// What provisioning would do, and provisioning itself: the difference, the effect, a note.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { preview, provision } from "./actions.js";
import { closeDialog } from "./app.js";
import { bar, chip, count, glyph, icon, milli, milliText } from "./parts.js";

export function previewDialog(app) {
  const { isLoading, effect, at } = app.dialog;
  const number = app.revision + 1;
  return html`<div class="ed-preview">
    <header class="flex flex-wrap items-center gap-3 px-4 lg:px-6 py-3 border-b border-line">
      <h2 id="dialog-title" class="text-lg font-semibold">${app.dialog.isProvision ? "Provision" : "Preview of"} revision ${number}</h2>
      <span class="tag-draft">DRAFT</span>
      <span class="text-ink-3">${isLoading ? "Running an allocation pass over the current tasks…" : effect.isOk ? `Allocation over the tasks of ${at.toLocaleTimeString("en-GB")}. Nothing was applied.` : "Nothing was applied."}</span>
      <span class="ml-auto flex gap-2">
        <button type="button" class="btn btn-ghost btn-sm" ?disabled=${isLoading} @click=${() => again(app)}>${icon("refresh-cw", "sm")}Run again</button>
        <button type="button" class="iconbtn iconbtn-lg" aria-label="Close" @click=${() => closeDialog(app)}>${icon("x")}</button>
      </span>
    </header>
    <div class="ed-preview-body">
      <aside class="ed-preview-side" aria-label="Difference and validation" tabindex="0">${difference(app)}${isLoading ? nothing : validation(app)}${isLoading || !effect.isOk ? nothing : pools(effect.data)}</aside>
      <div class="grow min-w-0">${isLoading ? loading() : effect.isOk ? effects(effect.data) : refused(effect.data)}</div>
    </div>
    ${foot(app, number)}
  </div>`;
}

const again = (app) => preview(app, { isProvision: app.dialog.isProvision });

// --- left: what changes ----------------------------------------------------------------------

function difference(app) {
  const changes = app.changes;
  return html`<section class="p-4 lg:px-5">
    <h3 class="font-semibold mb-2">${app.revision ? `Difference to revision ${app.revision}, which is live` : "Difference to what is live"}</h3>
    ${changes.length ? html`<ul class="grid gap-2">${changes.map(changeItem)}</ul>` : html`<p class="text-ink-3">No changes: the draft equals the live configuration.</p>`}
  </section>`;
}

const SIGNS = {
  added: ["ok", "plus", "New"],
  removed: ["bad", "trash-2", "Removed"],
  linked: ["ok", "plus", "Link added"],
  unlinked: ["bad", "unlink", "Link removed"],
  renamed: ["warn", "pencil", "Link name"],
  order: ["warn", "arrow-up-down", "Order"],
  changed: ["warn", "pencil", "Setting"],
};

function changeItem(change) {
  const [kind, sign, label] = SIGNS[change.what];
  return html`<li class="panel p-3">
    <div class="flex items-center gap-2">${glyph(change.kind)}<b class="font-semibold truncate min-w-0" title=${change.name}>${change.name}</b><span class="ml-auto">${chip(kind, label, sign)}</span></div>
    ${change.what === "added" || change.what === "removed" ? nothing : html`<div class="mt-2 text-xs">${change.lists ? lists(change) : values(change)}</div>`}
  </li>`;
}

const lists = ({ label, lists: [was, is] }) => html`<p class="eyebrow">${label}</p>
  <div class="ed-orders">
    <ol class="grid gap-1 text-ink-3">${was.map((name, index) => html`<li class="truncate">${index + 1} ${name}</li>`)}</ol>
    <span class="text-ink-3">${icon("arrow-right", "sm")}<span class="sr-only">becomes</span></span>
    <ol class="grid gap-1">${is.map((name, index) => html`<li class=${was[index] === name ? "truncate text-ink-3" : "truncate font-medium"}>${index + 1} ${name}</li>`)}</ol>
  </div>`;

function values({ what, label, before, after }) {
  if (what === "linked") return html`<span class="font-medium text-ok">+ ${after}</span>`;
  if (what === "unlinked") return html`<span class="text-bad">− ${before}</span>`;
  return html`<span class="eyebrow mr-2">${label}</span><span class="text-ink-3 line-through wrap-anywhere">${before}</span>
    <span class="text-ink-3 inline-grid align-[-2px]">${icon("arrow-right", "xs")}</span><span class="sr-only">becomes</span> <span class="font-medium wrap-anywhere">${after}</span>`;
}

function validation(app) {
  const { checked } = app.dialog;
  if (!checked.isOk) return nothing;
  const { errors, warnings } = checked.data;
  const box = (kind, sign, noun, list) => html`<div class=${`callout k-${kind} mb-2`}>
    ${icon(sign, "sm")}
    <div class="min-w-0"><b>${count(list.length, noun)}</b>${list.map((one) => html`<p class="text-ink-2 wrap-anywhere">${one.detail}</p>`)}</div>
  </div>`;
  return html`<section class="px-4 lg:px-5 pb-4">
    <h3 class="font-semibold mb-2">Validation</h3>
    ${errors.length ? box("bad", "circle-alert", "error", errors) : nothing}
    ${warnings.length ? box("warn", "triangle-alert", "warning", warnings) : nothing}
    ${errors.length ? nothing : html`<p class="flex items-center gap-1.5 text-xs text-ink-3"><span class="text-ok-line inline-grid">${icon("circle-check", "sm")}</span>No errors.</p>`}
  </section>`;
}

const gpu = (amounts) => milli(amounts?.gpu);
const arrow = html`<span class="text-ink-3 inline-grid align-[-2px] mx-1">${icon("arrow-right", "xs")}</span><span class="sr-only">becomes</span>`;

function pools(data) {
  return html`<section class="px-4 lg:px-5 pb-4">
    <h3 class="font-semibold mb-2">Pools</h3>
    ${data.pools.map(({ pool, before, after }) => {
      const [was, is] = [gpu(before?.use), gpu(after?.use)];
      const whole = gpu((after ?? before).capacity);
      const label = `${pool}: ${milliText(was)} GPU in use before, ${milliText(is)} after, of ${milliText(whole)}`;
      return html`<div class="mb-2.5">
        <div class="flex gap-2 text-xs"><span class="truncate text-ink-2" title=${pool}>${pool}</span>
          <span class="ml-auto whitespace-nowrap">${after ? html`${milliText(was)}${was === is ? nothing : html`${arrow}<b class="font-semibold">${milliText(is)}</b>`}<span class="text-ink-3"> / ${milliText(whole)}</span>` : "removed"}</span></div>
        <div class="mt-1">${bar([["res", Math.min(was, is)], ["plus", Math.max(is - was, 0)]], whole, { label })}</div>
      </div>`;
    })}
  </section>`;
}

// --- right: what happens ---------------------------------------------------------------------

function effects(data) {
  const after = data.pools.map((one) => gpu(one.after?.use)).reduce((a, b) => a + b, 0);
  const before = data.pools.map((one) => gpu(one.before?.use)).reduce((a, b) => a + b, 0);
  const whole = data.pools.map((one) => gpu(one.after?.capacity)).reduce((a, b) => a + b, 0);
  const waitedBefore = data.policies.filter((one) => !one.parent).reduce((sum, one) => sum + (one.before?.waiting ?? 0), 0);
  const figures = [
    ["use", "play", data.starts.count, "would start", data.moved.count ? `${data.moved.count} elsewhere than without it` : "beyond what starts anyway"],
    ["warn", "corner-down-left", data.preempted.count, "preempted", data.no_longer_preempted.count ? `${data.no_longer_preempted.count} no longer preempted` : "running work that stops"],
    ["wait", "hourglass", data.waiting.count, "still waiting", `${waitedBefore} before`],
    ["bad", "ban", data.rejected.count, "could never run", data.rejected.count ? "queued until the configuration or the request changes" : "every waiting task can run"],
    ["ok", "cpu", milliText(after), "GPU in use", `${milliText(before)} before, of ${milliText(whole)}`],
  ];
  return html`<div class="ed-figures">
      ${figures.map(([kind, sign, number, label, more]) => html`<div class=${`px-5 py-3 k-${kind}`}>
        <div class="flex items-center gap-2"><span class="ed-sign">${icon(sign)}</span><span class="text-xl font-semibold">${number}</span><span class="font-medium text-ink-2">${label}</span></div>
        <div class="text-xs text-ink-3 mt-0.5">${more}</div>
      </div>`)}
    </div>
    ${data.is_at_rest ? nothing : html`<p class="callout k-warn m-4">${icon("triangle-alert", "sm")}The passes had not come to rest: more would follow.</p>`}
    ${policies(data)} ${tasks(data)}`;
}

function policies(data) {
  if (!data.policies.length) return html`<p class="px-5 py-4 text-ink-3">There is no policy yet: no task is affected.</p>`;
  return html`<section class="pt-4">
    <div class="flex flex-wrap items-center gap-x-4 gap-y-1 px-5">
      <h3 class="font-semibold mr-auto">Effect per policy</h3>
      <span class="flex items-center gap-1.5 text-xs text-ink-3"><span class="sw sw-res"></span>Reserved</span><span class="flex items-center gap-1.5 text-xs text-ink-3"><span class="sw hatch"></span>Over quota</span><span class="flex items-center gap-1 text-xs text-ink-3"><span class="sw sw-mark"></span>Reservation</span>
    </div>
    <div class="overflow-x-auto" tabindex="0" role="group" aria-label="Effect per policy">
      <table class="tbl tbl-sm ed-table">
        <thead><tr><th>Policy</th><th>GPU in use, of limit</th><th class="r">Before</th><th class="r">After</th><th class="r">Starts</th><th class="r">Preempted</th><th class="r">Waiting</th></tr></thead>
        <tbody>${data.policies.map(policyRow)}</tbody>
      </table>
    </div>
  </section>`;
}

const used = (side) => gpu(side?.reserved) + gpu(side?.over_quota);

function policyRow({ policy, before, after, starts, preempted }) {
  const [was, is] = [used(before), used(after)];
  const line = (side, isOld) => {
    const whole = gpu(side?.limit) || Math.max(was, is, gpu(side?.reservation), 1000);
    const label = `${isOld ? "Before" : "After"}: ${milliText(used(side))} GPU, ${milliText(gpu(side?.over_quota))} over quota`;
    return html`<div class=${isOld ? "opacity-50" : ""}>${bar([["res", gpu(side?.reserved)], ["over", gpu(side?.over_quota)]], whole, { label, mark: gpu(side?.reservation) })}</div>`;
  };
  const [waited, waits] = [before?.waiting ?? 0, after?.waiting ?? 0];
  return html`<tr>
    <td><span class="flex items-center gap-2">${glyph("policies")}<span class="truncate font-medium max-w-[300px]" title=${policy}>${policy}</span></span></td>
    <td class="ed-bars"><div class="grid gap-1.5">${was === is ? nothing : line(before, true)}${line(after ?? before, false)}</div></td>
    <td class="r text-ink-3">${milliText(was)}</td>
    <td class="r"><b class="font-semibold">${milliText(is)}</b>${was === is ? nothing : html`<span class="text-xs text-ink-3"> ${is > was ? "+" : "−"}${milliText(Math.abs(is - was))}</span>`}</td>
    <td class="r">${starts || "–"}</td>
    <td class="r">${preempted ? chip("warn", preempted) : "–"}</td>
    <td class="r">${waited === waits ? waits : html`<span class="text-ink-3">${waited}</span>${arrow}<b class="font-semibold">${waits}</b>`}</td>
  </tr>`;
}

const TIERS = { reserved: "Reserved", borrowed: "Borrowed", over_quota: "Over quota" };
const GROUPS = [
  ["starts", "use", "play", "Would start", (row) => [row.pool, row.preempts ? `Preempts ${count(row.preempts, "task")}` : TIERS[row.tier]]],
  ["preempted", "warn", "corner-down-left", "Would be preempted", (row) => [row.pool, `${row.is_requeued ? "Back in its queue" : "Paused or ended"}; frees capacity for ${row.beneficiary.name || "another task"}`]],
  ["moved", "use", "arrow-right-left", "Would start elsewhere", (row) => [row.pool, ""]],
  ["delayed", "wait", "hourglass", "Would start without the change, and wait with it", () => ["–", ""]],
  ["no_longer_preempted", "ok", "shield-check", "Would be preempted without the change, and run on with it", (row) => [row.pool, ""]],
  ["closed", "bad", "ban", "Queues that close, or whose tasks become drafts", (row) => ["", `${row.closes ? "Closes; " : ""}${count(row.tasks_returned, "waiting task")} returned as drafts`]],
  ["waiting", "wait", "hourglass", "Still waiting", (row) => [row.queue, `${row.sentence} ${row.help}`]],
  ["rejected", "bad", "ban", "Could never run: queued until the configuration or the request changes", (row) => [row.queue, row.sentence]],
];

function tasks(data) {
  const groups = GROUPS.filter(([name]) => data[name].rows.length);
  if (!groups.length) return html`<p class="px-5 py-6 text-ink-3 border-t border-line mt-3">No task is affected.</p>`;
  return html`<section class="border-t border-line mt-3">
    <h3 class="font-semibold px-5 pt-3 pb-1">Tasks</h3>
    <div class="overflow-x-auto" tabindex="0" role="group" aria-label="Tasks that are affected">
      <table class="tbl tbl-sm ed-table">
        <thead><tr><th>Task</th><th>Policy</th><th>Where</th><th>Why</th></tr></thead>
        ${groups.map(([name, kind, sign, title, describe]) => group(data[name], { name, kind, sign, title, describe }))}
      </table>
    </div>
  </section>`;
}

function group(list, { name: groupName, kind, sign, title, describe }) {
  // Of queues that close, tasks are counted; the heading counts queues.
  const number = groupName === "closed" ? list.rows.length + list.more : list.count;
  return html`<tbody>
    <tr><th colspan="4" scope="rowgroup" class="bg-canvas"><span class=${`state text-xs k-${kind}`}>${icon(sign)}<span>${title}</span><span class="text-ink-3 font-normal">${number}</span></span></th></tr>
    ${list.rows.map((row) => {
      const [where, why] = describe(row);
      const many = row.count > 1 ? ` and ${row.count - 1} more` : "";
      const name = row.name || row.tasks?.[0]?.name || row.queue;
      return html`<tr><td class="wrap font-medium">${name}${many}</td><td class="text-ink-2">${row.policy}</td><td class="text-xs">${where || "–"}</td><td class="text-xs text-ink-3 wrap">${why}</td></tr>`;
    })}
    ${list.more ? html`<tr><td colspan="4" class="text-xs text-ink-3">and ${list.more} rows more</td></tr>` : nothing}
  </tbody>`;
}

function refused(data) {
  const reasons = Object.values(data.fields ?? {});
  return html`<div class="p-5"><div class="callout k-bad" role="alert">${icon("circle-alert", "sm")}<div>
    <b>This cannot be provisioned.</b>${reasons.length ? reasons.map((text) => html`<p class="text-ink-2">${text}</p>`) : html`<p class="text-ink-2">${data.detail}</p>`}
  </div></div></div>`;
}

const loading = () => html`<div class="p-5 grid gap-4" aria-busy="true">${[1, 2, 3, 4].map(() => html`<span class="skeleton h-8 rounded-md"></span>`)}</div>`;

// --- below: note and provision ---------------------------------------------------------------

function foot(app, number) {
  const { isLoading, effect, refused: sentenceOfRefusal = "" } = app.dialog;
  const submit = (event) => {
    event.preventDefault();
    provision(app, new FormData(event.target).get("note").trim());
  };
  const lost = effect?.isOk ? effect.data.preempted.count : 0;
  const isOff = isLoading || !effect.isOk || app.isDirty || !app.changes.length || app.busy !== "";
  return html`<form class="ed-preview-foot" @submit=${submit}>
    <label class="flex max-lg:flex-wrap items-center gap-3 grow"><span class="font-medium whitespace-nowrap">Note for the history</span><input class="input input-sm w-full max-w-[460px]" name="note" maxlength="1000" autocomplete="off" ?autofocus=${app.dialog.isProvision} /></label>
    ${sentenceOfRefusal ? html`<span class="text-bad text-xs" role="alert">${sentenceOfRefusal}</span>` : nothing}
    ${lost ? html`<span class="state k-warn text-xs">${icon("triangle-alert")}${count(lost, "running task")} will be preempted</span>` : nothing}
    ${app.isDirty ? html`<span class="text-xs text-ink-3">Save first: only what is saved can be provisioned.</span>` : nothing}
    <button type="button" class="btn btn-line btn-sm" @click=${() => closeDialog(app)}>${app.isDirty ? "Back to the editor" : "Cancel"}</button>
    <button class="btn btn-primary btn-sm" ?disabled=${isOff}>${icon("circle-arrow-up", "sm")}Provision revision ${number}</button>
  </form>`;
}
