// The matrix: profiles as rows, pools as columns, in each cell both orders as numbers.
//
// Arrows go from cell to cell; a digit or Enter edits, Enter takes the numbers and goes down, Escape
// leaves them; Delete disconnects. One cell at a time is in the order of the Tab key.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { announce, connectTo, disconnect, edit, found, openDialog, remove, say } from "./app.js";
import { adding, find, noMatch, problemList } from "./board.js";
import { amountsText, rankBefore } from "./differences.js";
import { connect, linkOf, linkProblem, moveIn, poolOf, profileOf } from "./document.js";
import { icon } from "./parts.js";

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export function matrix(app) {
  const { pools, profiles, isEmpty } = found(app);
  return html`<section class="ed-board ed-matrix" aria-label="Matrix">
    <div class="flex flex-wrap items-center gap-2 mb-3">
      <h2 class="text-base font-semibold">Profiles and pools</h2>
      <span class="text-ink-3">${app.doc.profiles.length} profiles, ${app.doc.pools.length} pools</span>
      ${find(app)} ${adding(app)}
    </div>
    ${isEmpty ? noMatch(app) : nothing}
    ${app.doc.profiles.length && app.doc.pools.length ? table(app, pools, profiles) : html`<p class="panel px-6 py-8 text-center text-ink-3">The matrix needs a pool and a profile: add them.</p>`}
    <p class="text-xs text-ink-3 mt-3 flex flex-wrap gap-x-4 gap-y-1">
      <span><span class="rank k-profile">1</span> routing: which choice the pool is for the profile</span>
      <span><span class="rank k-pool">1</span> execution: whom the pool serves first</span>
      <span>Arrow keys move; a digit or Enter edits; Delete disconnects.</span>
    </p>
  </section>`;
}

function table(app, pools, profiles) {
  return html`<div class="ed-grid-scroll panel" @keydown=${(event) => onKey(app, event)} @focusin=${onFocus} @dblclick=${(event) => begin(app, event.target.closest("[data-cell]"))}>
    <table class="ed-grid" role="grid" aria-label="Links of profiles to pools" aria-rowcount=${profiles.length + 1} aria-colcount=${pools.length + 1}>
      <thead><tr>
        <th scope="col">Profile</th>
        ${pools.map((pool) => columnHead(app, pool))}
        <th><span class="sr-only">Delete</span></th>
      </tr></thead>
      <tbody>${profiles.map((profile) => rowOf(app, profile, pools))}</tbody>
    </table>
  </div>`;
}

const columnHead = (app, pool) => html`<th scope="col"><span class="flex items-center gap-1">
  <span class="min-w-0"><button type="button" class="ed-name" title=${pool.name} @click=${() => openDialog(app, "pool", { key: pool.key })}>${pool.name}</button><span class="text-2xs text-ink-3 font-normal">${amountsText(pool.capacity)}</span></span>
  ${deleting(app, "pools", pool)}
</span></th>`;

const deleting = (app, kind, { key, name }) => html`<button type="button" class="iconbtn" aria-label=${`Delete ${name}`} @click=${() => remove(app, kind, key)}>${icon("trash-2", "sm")}</button>`;

function rowOf(app, profile, pools) {
  const links = new Map(profile.pools.map((link, index) => [link.pool, { link, rank: index + 1 }]));
  const live = profileOf(app.live, profile.key)?.pools.map((link) => link.pool);
  const problems = (app.findings ?? []).filter((one) => one.key === profile.key);
  return html`<tr>
    <th scope="row">
      <button type="button" class="ed-name" title=${profile.name} @click=${() => openDialog(app, "profile", { key: profile.key })}>${profile.name}</button>
      <span class="text-2xs text-ink-3 font-normal">${amountsText(profile.request)}</span>${problemList(problems)}
    </th>
    ${pools.map((pool) => cell(app, { profile, pool, links, live }))}
    <td>${deleting(app, "profiles", profile)}</td>
  </tr>`;
}

function cell(app, { profile, pool, links, live }) {
  const linked = links.get(pool.key);
  const at = `${profile.key} ${pool.key}`;
  if (app.editing?.at === at) return editor(app, profile, pool, linked);
  const execution = linked ? pool.profiles.indexOf(profile.key) + 1 : 0;
  const isChanged =
    linked &&
    (rankBefore(live, pool.key, [...links.keys()]) !== null || rankBefore(poolOf(app.live, pool.key)?.profiles, profile.key, pool.profiles) !== null);
  const said = (text) => html`<span class="sr-only">${text}</span>`;
  const where = `${profile.name} in ${pool.name}: `;
  const content = linked
    ? html`${said(`${where}routing`)}<span class="rank k-profile">${linked.rank}</span>${said("and execution")}<span class="rank k-pool">${execution}</span>${isChanged ? said("changed") : nothing}`
    : html`${said(`${where}not connected`)}<span class="text-ink-3" aria-hidden="true">·</span>`;
  return html`<td role="gridcell" data-cell=${at} class=${isChanged ? "is-changed-cell" : ""}>${content}</td>`;
}

function editor(app, profile, pool, linked) {
  const { digit } = app.editing;
  const execution = linked ? pool.profiles.indexOf(profile.key) + 1 : "";
  const input = (name, label, value) => html`<input class=${`ed-rank k-${name === "routing" ? "profile" : "pool"}`} name=${name} inputmode="numeric" maxlength="3" autocomplete="off" aria-label=${label} .value=${String(value)} />`;
  return html`<td role="gridcell" data-cell=${app.editing.at} class="is-editing" @focusout=${(event) => onLeave(app, event)}>
    ${input("routing", `Routing rank of ${pool.name} for ${profile.name}`, digit ?? linked?.rank ?? "")}
    ${input("execution", `Execution rank of ${profile.name} in ${pool.name}`, execution)}
  </td>`;
}

// --- keys ------------------------------------------------------------------------------------

/** Exactly one cell is reached by Tab: the one that had the focus last, or the first. */
export function markCurrent(app, root) {
  const cells = [...root.querySelectorAll("[data-cell]")];
  const current = cells.find((one) => one.dataset.cell === app.current) ?? cells[0];
  for (const one of cells) one.tabIndex = one === current ? 0 : -1;
}

function onFocus(event) {
  const target = event.target.closest("[data-cell]");
  if (!target || event.target !== target) return;
  for (const one of event.currentTarget.querySelectorAll('[data-cell][tabindex="0"]')) one.tabIndex = -1;
  target.tabIndex = 0;
}

function onKey(app, event) {
  if (event.target.matches("input")) return onEditKey(app, event);
  const target = event.target.closest("[data-cell]");
  if (target !== event.target || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (event.key in STEPS) focusCell(app, neighbour(target, ...STEPS[event.key]));
  else if (event.key === "Enter") begin(app, target);
  else if (/^[1-9]$/.test(event.key)) begin(app, target, event.key);
  else if (event.key === "Delete" || event.key === "Backspace") cut(app, target);
  else return undefined;
  return event.preventDefault();
}

function onEditKey(app, event) {
  if (event.key === "Enter") {
    event.preventDefault();
    const { at } = app.editing;
    const isAccepted = commit(app);
    if (isAccepted) app.then((root) => focusCell(app, neighbour(cellAt(root, at), 1, 0) ?? cellAt(root, at)));
  } else if (event.key === "Escape") {
    event.preventDefault();
    const { at } = app.editing;
    app.set({ editing: null });
    app.then((root) => focusCell(app, cellAt(root, at)));
  }
}

const cellAt = (root, at) => [...root.querySelectorAll("[data-cell]")].find((one) => one.dataset.cell === at);

function neighbour(target, rows, columns) {
  const row = target?.parentElement;
  const index = [...(row?.children ?? [])].indexOf(target) + columns;
  const table = [...(row?.parentElement.children ?? [])];
  const other = table[table.indexOf(row) + rows]?.children[index];
  return other?.matches("[data-cell]") ? other : null;
}

function focusCell(app, target) {
  if (!target) return;
  app.current = target.dataset.cell;
  target.tabIndex = 0;
  target.focus();
}

function begin(app, target, digit) {
  if (!target) return;
  app.current = target.dataset.cell;
  app.set({ editing: { at: target.dataset.cell, digit } });
  app.then((root) => {
    const input = root.querySelector(".is-editing input");
    input?.focus();
    if (digit === undefined) input?.select();
  });
}

function cut(app, target) {
  const [profile, pool] = target.dataset.cell.split(" ");
  if (!linkOf(profileOf(app.doc, profile), pool)) return;
  disconnect(app, profile, pool);
  announce("Disconnected");
}

/** Going elsewhere takes the numbers, as Enter does. */
function onLeave(app, event) {
  if (event.currentTarget.contains(event.relatedTarget)) return;
  // Not while the cell itself is being removed by a rendering.
  if (app.editing && event.currentTarget.isConnected) commit(app);
}

/** Returns whether the numbers were accepted; empty means the end of the order, or no link at all. */
function commit(app) {
  const td = document.querySelector(".is-editing");
  const [profile, pool] = app.editing.at.split(" ");
  const [routing, execution] = [...td.querySelectorAll("input")].map((one) => one.value.trim());
  if (![routing, execution].every((one) => /^\d*$/.test(one))) {
    say(app, "A rank is a whole number from 1 on.", null, true);
    return false;
  }
  app.set({ editing: null });
  if (!routing && !execution) {
    if (linkOf(profileOf(app.doc, profile), pool)) disconnect(app, profile, pool);
    return true;
  }
  setRanks(app, profile, pool, { routing, execution });
  return true;
}

function setRanks(app, profile, pool, { routing, execution }) {
  let doc = app.doc;
  if (!linkOf(profileOf(doc, profile), pool)) {
    const name = poolOf(doc, pool).name;
    if (linkProblem(doc, profile, pool, name)) return connectTo(app, profile, pool);
    doc = connect(doc, profile, pool, { name });
  }
  if (routing) doc = moveIn(doc, "routing", profile, pool, Number(routing) - 1);
  if (execution) doc = moveIn(doc, "execution", pool, profile, Number(execution) - 1);
  const ranks = [profileOf(doc, profile).pools.findIndex((link) => link.pool === pool), poolOf(doc, pool).profiles.indexOf(profile)];
  announce(`Routing ${ranks[0] + 1}, execution ${ranks[1] + 1}`);
  return edit(app, doc);
}
