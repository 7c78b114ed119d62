// The board of the editor: cards of pools and profiles with their orders and links.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { disconnect, found, openDialog, remove, select } from "./app.js";
import { amountsText, marks, rankBefore } from "./differences.js";
import { linkOf, poolOf, profileOf } from "./document.js";
import { bar, chip, count, gauge, glyph, gpuOf, icon, milli, milliText, runWait, wasChip } from "./parts.js";

// A pool with more tiles than this is wider than the others.
const WIDE_FROM = 3;
const METERS = { cpu: "CPU", memory_mb: "Memory, MB", slot: "Slots" };

export function board(app) {
  const shown = found(app);
  const marked = marks(app.changes);
  const usable = app.doc.pools.reduce((sum, pool) => sum + (app.facts.pools[pool.key]?.usable ?? 0), 0);
  const used = app.doc.pools.reduce((sum, pool) => sum + usedIn(app, pool.key), 0);
  return html`
    <section class="board is-draft ed-board" id="board" aria-label="Board" @keydown=${(event) => onKey(app, event)}>
      <svg class="wires absolute inset-0 w-full h-full pointer-events-none" aria-hidden="true"></svg>
      <svg class="ed-thread" aria-hidden="true"><path></path></svg>
      <div class="flex flex-wrap items-center gap-2 mb-2">
        <h2 class="text-base font-semibold bg-canvas">Pools</h2>
        <span class="text-ink-3 bg-canvas">${app.doc.pools.length}${
          usable ? `, with ${milliText(used)} of ${milliText(usable)} usable GPUs in use` : ""
        }</span>
        ${find(app)} ${adding(app)}
      </div>
      ${shown.isEmpty ? noMatch(app) : nothing}
      ${
        app.doc.pools.length
          ? html`<div class="ed-row">${shown.pools.map((pool) => poolCard(app, pool, marked.get(pool.key) ?? []))}</div>`
          : empty(app, "pools", "No pool yet", "A pool is capacity: nodes or a cloud of one kind.", "Add pool")
      }
      <div class="ed-gap"></div>
      <div class="flex items-center gap-2 mb-2">
        <h2 class="text-base font-semibold bg-canvas">Profiles</h2><span class="text-ink-3 bg-canvas">${app.doc.profiles.length}</span>
      </div>
      ${
        app.doc.profiles.length
          ? html`<div class="ed-row ed-row-profiles">${shown.profiles.map((one) => profileCard(app, one, marked.get(one.key) ?? []))}</div>`
          : empty(app, "profiles", "No profile yet", "A profile is what one task takes of a pool.", "Add profile")
      }
    </section>`;
}

/** Search, and what is added; the matrix has the same. */
export const find = (app) => html`<label class="ed-find ml-auto">
  ${icon("search", "xs")}<span class="sr-only">Find a card</span>
  <input type="search" placeholder="Find a card" .value=${app.query} @input=${(event) => app.set({ query: event.target.value })} />
</label>`;

export const adding = (app) => html`
  <button type="button" class="btn btn-line btn-xs" @click=${() => openDialog(app, "pool")}>${icon("plus", "xs")}Add pool</button>
  <button type="button" class="btn btn-line btn-xs" @click=${() => openDialog(app, "profile")}>${icon("plus", "xs")}Add profile</button>`;

export const noMatch = (app) => html`<div class="panel px-6 py-6 text-center mb-3">
  <p class="font-semibold">No card matches “${app.query.trim()}”</p>
  <button type="button" class="btn btn-line btn-sm mt-3" @click=${() => app.set({ query: "" })}>Clear filter</button>
</div>`;

const empty = (app, kind, title, text, action) => html`<div class="panel px-6 py-8 text-center">
  <span class="inline-block">${glyph(kind)}</span>
  <p class="font-semibold text-base mt-3">${title}</p>
  <p class="text-ink-3 mt-1">${text}</p>
  <button type="button" class="btn btn-primary btn-sm mt-4" @click=${() => openDialog(app, kind === "pools" ? "pool" : "profile")}>
    ${icon("plus", "sm")}${action}…
  </button>
</div>`;

function usedIn(app, key) {
  const { reserved = 0, over = 0 } = app.facts.pools[key] ?? {};
  return reserved + over;
}

// --- pools -----------------------------------------------------------------------------------

function poolCard(app, pool, changes) {
  const facts = app.facts.pools[pool.key] ?? {};
  const problems = findingsOf(app, pool.key);
  return html`<article
    class=${`${cardClass("pool", problems)}${pool.profiles.length > WIDE_FROM ? " is-wide" : ""}`}
    data-pool=${pool.key}
    tabindex="0"
    aria-label=${`Pool ${pool.name}`}
    @focusin=${() => select(app, { pool: pool.key })}
  >
    <header class="flex items-center gap-2 px-3 pt-3">
      ${glyph("pools")}
      <h3 class="title truncate min-w-0" title=${pool.name}>${pool.name}</h3>
      ${isNew(changes) ? chip("warn", "New") : nothing}
      ${facts.is_simulated ? chip("wait", "Simulated", "flask-conical") : nothing}
      ${facts.is_paused ? chip("wait", "Paused", "pause") : nothing}
      ${buttons(app, "pools", "pool", pool)}
    </header>
    ${pool.description ? html`<p class="text-xs text-ink-2 px-3 pt-1">${pool.description}</p>` : nothing}
    <div class="flex gap-4 px-3 pt-2 items-center min-h-[92px]">
      <div class="shrink-0">${gauge(facts, milli(pool.capacity.gpu))}</div>
      <div class="grow min-w-0 grid gap-2">${meters(pool, facts)}</div>
    </div>
    <div class="flex flex-wrap items-center gap-1.5 px-3 pt-1 text-xs">${health(facts, { isSaid: problems.some((one) => one.code === "no_server") })}${fieldChips(changes)}</div>
    ${problemList(problems)}
    <div class="px-3 pb-3 pt-2">
      <div class="flex items-center gap-2 mb-1.5">
        <span class="eyebrow">Execution order</span><span class="h-px grow bg-line"></span>
        <button type="button" class="connect ed-connect" @click=${() => openDialog(app, "connect", { pool: pool.key })}>
          ${icon("plus", "xs")}Connect<span class="sr-only"> a profile to ${pool.name}</span>
        </button>
      </div>
      <ol class="tiles tiles-wrap" data-order="execution" data-of=${pool.key} aria-label=${`Execution order of ${pool.name}`}>
        ${pool.profiles.map((key, index) => tile(app, pool, key, index + 1))}
      </ol>
      ${pool.profiles.length ? nothing : html`<p class="text-xs text-ink-3">No profile may run here yet.</p>`}
    </div>
  </article>`;
}

function tile(app, pool, key, rank) {
  const profile = profileOf(app.doc, key);
  const figures = app.facts.profiles[key] ?? { in: {}, waiting: 0 };
  const was = rankBefore(poolOf(app.live, pool.key)?.profiles, key, pool.profiles);
  return html`<li class=${was === 0 ? "tile is-new" : "tile"} data-tile=${key} data-item=${key}>
    <span class="flex items-center justify-between gap-1"
      ><span class="rank k-pool">${rank}</span>
      ${was === null ? html`<span class="text-2xs text-ink-3">${requestText(profile)}</span>` : wasChip(was)}</span
    >
    <span class="name" title=${profile.name}>${profile.name}</span>
    <span class="flex gap-2 text-2xs mt-1">${runWait(figures.in[pool.key] ?? 0, figures.waiting, true)}</span>
  </li>`;
}

function meters(pool, facts) {
  const keys = Object.keys(pool.capacity).filter((key) => key !== "gpu" && milli(pool.capacity[key]) > 0);
  if (!keys.length) return html`<p class="text-xs text-ink-3">Only GPUs are counted here.</p>`;
  return keys.slice(0, 3).map((key) => {
    const [used, whole] = [facts.use?.[key] ?? 0, milli(pool.capacity[key])];
    const label = METERS[key] ?? key;
    const numbers = [used, whole].map((one) => (one / 1000).toLocaleString("en"));
    return html`<div>
      <div class="flex justify-between text-xs">
        <span class="text-ink-3">${label}</span><span class="text-ink-2">${numbers[0]}<span class="text-ink-3"> / ${numbers[1]}</span></span>
      </div>
      <div class="mt-1">${bar([["res", used]], whole, { label: `${numbers[0]} of ${numbers[1]} ${label} in use` })}</div>
    </div>`;
  });
}

function health(facts, { isSaid }) {
  if (!facts.nodes) {
    // The finding of *Validate* below says the same.
    if (isSaid) return nothing;
    return html`<span class="inline-flex items-center gap-1.5 text-ink-2"
      ><span class="text-warn-line inline-grid">${icon("server-off", "sm")}</span>No node serves it yet</span
    >`;
  }
  const isWell = facts.nodes === facts.healthy;
  return html`<span class="inline-flex items-center gap-1.5 text-ink-2"
      ><span class=${isWell ? "text-ok-line inline-grid" : "text-warn-line inline-grid"}
        >${icon(isWell ? "circle-check" : "triangle-alert", "sm")}</span
      >${facts.healthy} of ${facts.nodes} nodes healthy</span
    >${facts.drift.map((text) => html`<span class="chip k-warn" title=${text}>${icon("triangle-alert")}Drift<span class="sr-only">: ${text}</span></span>`)}`;
}

// --- profiles --------------------------------------------------------------------------------

function profileCard(app, profile, changes) {
  const problems = findingsOf(app, profile.key);
  const { running = 0, waiting = 0 } = app.facts.profiles[profile.key] ?? {};
  const live = profileOf(app.live, profile.key);
  return html`<article
    class=${cardClass("profile", problems)}
    data-profile=${profile.key}
    tabindex="0"
    aria-label=${`Profile ${profile.name}`}
    @focusin=${() => select(app, { profile: profile.key })}
  >
    ${profile.pools.map(
      (link, index) => html`<span class="port" data-port=${link.pool} ?data-new=${!(live && linkOf(live, link.pool))} aria-hidden="true">${index + 1}</span>`,
    )}
    <header class="flex items-center gap-1.5 px-3 pt-3 ed-grab" data-drag-profile=${profile.key} title="Drag to a pool to connect">
      ${glyph("profiles")}
      <h3 class="title truncate min-w-0" title=${profile.name}>${profile.name}</h3>
      ${isNew(changes) ? chip("warn", "New") : nothing}
      <span class="ml-auto text-base font-semibold whitespace-nowrap">${gpuOf(profile.request)}<span class="text-xs font-normal text-ink-3"> GPU</span></span>
      ${buttons(app, "profiles", "profile", profile)}
    </header>
    <div class="flex items-center gap-2 px-3 pt-1 text-xs text-ink-3 flex-wrap">
      <span class="eyebrow">Routing order</span><span class="ml-auto truncate">${restText(profile)}</span>
    </div>
    ${profile.description ? html`<p class="text-xs text-ink-2 px-3 pt-1">${profile.description}</p>` : nothing}
    ${hasFields(changes) ? html`<div class="flex flex-wrap gap-1 px-3 pt-1">${fieldChips(changes)}</div>` : nothing}
    ${problemList(problems)}
    <ol class="px-3 pt-1 grid gap-1" data-order="routing" data-of=${profile.key} aria-label=${`Routing order of ${profile.name}`}>
      ${profile.pools.map((link, index) => linkRow(app, profile, live, link, index + 1))}
    </ol>
    <div class="px-3 pt-1">
      <button type="button" class="connect" @click=${() => openDialog(app, "connect", { profile: profile.key })}>
        ${icon("plus", "xs")}Connect a pool<span class="sr-only"> to ${profile.name}</span>
      </button>
    </div>
    <footer class="flex items-center gap-2.5 px-3 pt-2 pb-2.5 text-xs whitespace-nowrap">
      ${runWait(running, waiting)}<span class="ml-auto font-medium">${count(profile.queues.length, "queue")}</span>
    </footer>
  </article>`;
}

function linkRow(app, profile, live, link, rank) {
  const pool = poolOf(app.doc, link.pool);
  const was = rankBefore(live?.pools.map((one) => one.pool), link.pool, profile.pools.map((one) => one.pool));
  return html`<li class=${was === 0 ? "linkrow is-new" : "linkrow"} data-item=${link.pool}>
    <span class="rank k-profile">${rank}</span>
    <button
      type="button"
      class="truncate text-start grow min-w-6 min-h-6"
      title=${link.name === pool.name ? "Rename this link" : `Link “${link.name}”: rename it`}
      @click=${() => openDialog(app, "link", { profile: profile.key, pool: link.pool })}
    >${pool.name}${link.name === pool.name ? nothing : html`<span class="text-ink-3"> as ${link.name}</span>`}</button>
    ${wasChip(was)}
    <button type="button" class="iconbtn shrink-0" aria-label=${`Disconnect ${profile.name} from ${pool.name}`} @click=${() => disconnect(app, profile.key, link.pool)}>
      ${icon("x", "xs")}
    </button>
  </li>`;
}

const requestText = (profile) => `${gpuOf(profile.request)} GPU`;

function restText(profile) {
  const { gpu, ...rest } = profile.request;
  const words = [amountsText(rest)];
  if (profile.replicas > 1) words.push(`${profile.replicas} members`);
  if (profile.is_dynamic) words.push("dynamic");
  return words.filter(Boolean).join(", ");
}

// --- both ------------------------------------------------------------------------------------

const cardClass = (kind, problems) =>
  `card-k k-${kind} ${kind}-card min-w-0${problems.some((one) => one.isError) ? " is-wrong" : ""}`;

const findingsOf = (app, key) => (app.findings ?? []).filter((one) => one.key === key);

export const problemList = (problems) =>
  problems.map(
    (one) => html`<p class=${`ed-finding k-${one.isError ? "bad" : "warn"}`}>
      ${icon(one.isError ? "circle-alert" : "triangle-alert", "xs")}<span><span class="sr-only">${one.isError ? "Error: " : "Warning: "}</span>${one.detail}</span>
    </p>`,
  );

const isNew = (changes) => changes.some((change) => change.what === "added");
const hasFields = (changes) => changes.some((change) => change.what === "changed");
const fieldChips = (changes) =>
  changes
    .filter((change) => change.what === "changed" && change.label !== "Description")
    .map((change) => html`<span class="chip k-warn ed-was" title=${`${change.label} ${change.after}, was ${change.before}`}>${change.label}: was ${change.before}</span>`);

function buttons(app, kind, dialog, entry) {
  return html`<span class=${kind === "pools" ? "ml-auto flex shrink-0" : "flex shrink-0"}>
    <button type="button" class="iconbtn" aria-label=${`Edit ${entry.name}`} @click=${() => openDialog(app, dialog, { key: entry.key })}>${icon("pencil", "sm")}</button>
    <button type="button" class="iconbtn" aria-label=${`Delete ${entry.name}`} @click=${() => remove(app, kind, entry.key)}>${icon("trash-2", "sm")}</button>
  </span>`;
}

/** On a card: Enter edits, C connects, arrows go to the neighbours. */
function onKey(app, event) {
  const card = event.target;
  if (!card.matches(".card-k") || event.altKey || event.ctrlKey || event.metaKey) return;
  const { pool, profile } = card.dataset;
  const cards = [...card.parentElement.children];
  const steps = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.key === "Enter") openDialog(app, pool ? "pool" : "profile", { key: pool ?? profile });
  else if (event.key.toLowerCase() === "c") openDialog(app, "connect", { pool, profile });
  else if (event.key in steps) cards[cards.indexOf(card) + steps[event.key]]?.focus();
  else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    const other = pool ? ".profile-card" : ".pool-card";
    card.closest(".ed-board").querySelector(other)?.focus();
  } else return;
  event.preventDefault();
}
