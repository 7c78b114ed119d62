// The side panel with the three orders; every row moves by dragging, buttons, and Alt with arrows.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { move, nameOf } from "./app.js";
import { rankBefore } from "./differences.js";
import { orderOf, poolOf, profileOf } from "./document.js";
import { icon, milliText, wasChip } from "./parts.js";

const ORDERS = [
  { order: "execution", title: "Execution", hint: "profiles in a pool", owners: "pools", kind: "profile" },
  { order: "routing", title: "Routing", hint: "pools of a profile", owners: "profiles", kind: "pool" },
  { order: "queuing", title: "Queuing", hint: "policies of a profile", owners: "profiles", kind: "policy" },
];

export function orderPanel(app) {
  return html`<aside class="ed-side" aria-label="Order">
    <div class="flex items-center gap-2 px-4 h-11 border-b border-line">
      <h2 class="font-semibold text-base">Order</h2>
      <span class="text-xs text-ink-3">drag, or Alt with arrow keys</span>
    </div>
    ${ORDERS.map((one) => section(app, one))}
    <p class="px-4 py-3 text-xs text-ink-3">
      Orders apply to waiting tasks when you provision. Running tasks are not touched by an order.
    </p>
  </aside>`;
}

function section(app, { order, title, hint, owners, kind }) {
  const entries = app.doc[owners];
  const owner = entries.find((one) => one.key === app.selected[order]) ?? entries[0];
  return html`<section class="border-b border-line" aria-label=${`${title} order`}>
    <div class="px-4 pt-3 pb-1">
      <div class="flex items-baseline justify-between">
        <h3 class="font-semibold">${title}</h3>
        <span class="text-2xs text-ink-3">${hint}</span>
      </div>
      ${
        owner
          ? html`<select
              class="select select-sm w-full mt-1.5"
              aria-label=${owners === "pools" ? `Pool whose ${order} order is shown` : `Profile whose ${order} order is shown`}
              @change=${(event) => app.set({ selected: { ...app.selected, [order]: event.target.value } })}
            >
              ${entries.map((one) => html`<option value=${one.key} .selected=${one.key === owner.key}>${one.name}</option>`)}
            </select>`
          : nothing
      }
    </div>
    ${owner ? list(app, order, kind, owner) : html`<p class="px-4 pb-3 text-xs text-ink-3">Nothing to order yet.</p>`}
  </section>`;
}

function list(app, order, kind, owner) {
  const keys = orderOf(app.doc, order, owner.key);
  const before = orderOf(app.live, order, owner.key);
  const isKnown = poolOf(app.live, owner.key) ?? profileOf(app.live, owner.key);
  if (!keys.length) {
    const word = order === "queuing" ? "No policy is connected to it." : "Nothing is connected yet.";
    return html`<p class="px-4 pb-3 text-xs text-ink-3">${word}</p>`;
  }
  return html`<ol class="px-2 pb-2" data-order=${order} data-of=${owner.key} @keydown=${(event) => onKey(app, order, owner.key, event)}>
    ${keys.map((key, index) => row(app, { order, kind, owner: owner.key, key, rank: index + 1, last: keys.length, was: isKnown ? rankBefore(before, key, keys) : null }))}
  </ol>`;
}

function row(app, { order, kind, owner, key, rank, last, was }) {
  const name = nameOf(app, key);
  const step = (by) => () => moveRow(app, { order, owner, key, to: rank - 1 + by, by });
  const isQueue = order === "queuing";
  return html`<li class=${was === null ? "row-o" : "row-o is-moved"} data-item=${key} tabindex="0" aria-label=${`${name}, ${rank} of ${last}`}>
    <span class="grip">${icon("grip-vertical", "sm")}</span>
    <span class=${`rank rank-soft k-${kind}`}>${rank}</span>
    <span class="truncate" title=${isQueue ? `${name}, queue ${key}` : name}>${name}</span>
    ${wasChip(was)}
    <span class="ml-auto text-xs text-ink-3 whitespace-nowrap">${meta(app, order, key)}</span>
    <span class="flex shrink-0">
      <button type="button" class="iconbtn" data-step="-1" aria-label=${`Move ${name} up`} ?disabled=${rank === 1} @click=${step(-1)}>${icon("chevron-up", "sm")}</button>
      <button type="button" class="iconbtn" data-step="1" aria-label=${`Move ${name} down`} ?disabled=${rank === last} @click=${step(1)}>${icon("chevron-down", "sm")}</button>
    </span>
  </li>`;
}

function meta(app, order, key) {
  if (order === "execution") return `${profileOf(app.doc, key)?.request.gpu ?? 0} GPU`;
  if (order === "routing") {
    const facts = app.facts.pools[key];
    return facts ? `${milliText(Math.max(facts.usable - facts.reserved - facts.over, 0))} free` : "";
  }
  const waiting = app.facts.queues[key]?.waiting;
  return waiting ? `${waiting} waiting` : "";
}

function onKey(app, order, owner, event) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const item = event.target;
  if (!by || !item.matches("[data-item]")) return;
  event.preventDefault();
  const rows = [...event.currentTarget.querySelectorAll("[data-item]")];
  const at = rows.indexOf(item);
  if (!event.altKey) return rows[at + by]?.focus();
  if (rows[at + by]) moveRow(app, { order, owner, key: item.dataset.item, to: at + by, by: 0 });
}

/** The focus goes with the row: to the same button, or to the row where it was there. */
function moveRow(app, { order, owner, key, to, by }) {
  move(app, order, owner, key, to);
  app.then((root) => {
    const moved = [...root.querySelectorAll(`.ed-side [data-order=${order}] [data-item]`)].find((one) => one.dataset.item === key);
    const button = by ? moved?.querySelector(`[data-step="${by}"]:not(:disabled)`) : null;
    (button ?? moved)?.focus();
  });
}
