// The state of the editor, and what people do with the document in the page.
import * as documents from "./document.js";
import { differences } from "./differences.js";
import { ordinal } from "./parts.js";

const TOAST_MS = 8000;

/** `render(app)` is called once after all changes of one turn. */
export function createApp({ state, choices, urls, me }, csrf, render) {
  const app = {
    choices,
    urls,
    me,
    csrf,
    view: "board",
    query: "",
    findings: null,
    dialog: null,
    toast: null,
    busy: "",
    // Grows as a request begins and as it ends.
    turn: 0,
    isDragging: false,
    editing: null,
    selected: { execution: "", routing: "", queuing: "" },
    set(changes) {
      Object.assign(app, changes);
      if (app.isAsked) return;
      app.isAsked = true;
      queueMicrotask(() => {
        app.isAsked = false;
        // What is being dragged must not move under the pointer.
        if (!app.isDragging) render(app);
      });
    },
    /** After the next rendering. */
    then(step) {
      app.steps.push(step);
      app.set({});
    },
    steps: [],
    get isDirty() {
      return !documents.same(app.doc, app.saved);
    },
    get changes() {
      if (app.known?.doc !== app.doc || app.known.live !== app.live) {
        app.known = { doc: app.doc, live: app.live, list: differences(app.live, app.doc) };
      }
      return app.known.list;
    },
  };
  take(app, state);
  return app;
}

/** The state as the server answered it: unsaved changes are gone. */
export function take(app, state) {
  const draft = documents.fromData(state.draft);
  Object.assign(app, { doc: draft, saved: draft });
  takeFacts(app, state);
  app.set({ version: state.version, findings: null });
}

/** What is live, who saved, and the figures; the document in the page stays. */
export function takeFacts(app, state) {
  const { facts, revision, saved_at, saved_by } = state;
  const live = documents.fromData(state.live);
  app.set({
    facts,
    live: app.live && documents.same(app.live, live) ? app.live : live,
    revision,
    savedAt: saved_at,
    savedBy: saved_by,
    latest: state.version,
  });
}

/** Another document; `text` is said, and can be undone for a while. */
export function edit(app, doc, text = "") {
  if (doc === app.doc) return;
  const before = app.doc;
  app.set({ doc, findings: null });
  if (text) say(app, text, () => app.set({ doc: before, findings: null, toast: null }));
  else app.set({ toast: null });
}

/** A message for some seconds, an error until it is dismissed; `undo` reverts the change that it
 * reports. It stays while the pointer or the focus is on it. */
export function say(app, text, undo = null, isError = false) {
  clearTimeout(app.timer);
  if (!isError) leaveLater(app);
  app.set({ toast: { text, undo, isError } });
}

function leaveLater(app) {
  app.timer = setTimeout(() => {
    if (document.querySelector(".toast-line:is(:hover, :focus-within)")) leaveLater(app);
    else app.set({ toast: null });
  }, TOAST_MS);
}

/** For screen readers, politely. */
export function announce(text) {
  const region = document.getElementById("live-region");
  if (region) region.textContent = text;
}

export function openDialog(app, name, values = {}) {
  app.set({ dialog: { name, errors: {}, ...values } });
}

/** Closed first, so that the focus goes back to where it was. */
export function closeDialog(app) {
  document.querySelector("#editor dialog[open]")?.close();
  app.set({ dialog: null });
}

/** Connects, or asks for a name where the pool's own is taken in this profile. */
export function connectTo(app, profileKey, poolKey) {
  const pool = documents.poolOf(app.doc, poolKey);
  const profile = documents.profileOf(app.doc, profileKey);
  const problem = documents.linkProblem(app.doc, profileKey, poolKey, pool.name);
  if (documents.linkOf(profile, poolKey)) return say(app, problem, null, true);
  if (problem) {
    return openDialog(app, "connect", { profile: profileKey, pool: poolKey, errors: { name: problem } });
  }
  const place = ordinal(profile.pools.length + 1);
  edit(
    app,
    documents.connect(app.doc, profileKey, poolKey),
    `${profile.name} connected to ${pool.name}, its ${place} choice.`,
  );
  select(app, { pool: poolKey, profile: profileKey });
}

export function disconnect(app, profileKey, poolKey) {
  const [profile, pool] = [documents.profileOf(app.doc, profileKey), documents.poolOf(app.doc, poolKey)];
  edit(app, documents.disconnect(app.doc, profileKey, poolKey), `${profile.name} disconnected from ${pool.name}.`);
}

export function remove(app, kind, key) {
  const entry = app.doc[kind].find((one) => one.key === key);
  const next = (kind === "pools" ? documents.removePool : documents.removeProfile)(app.doc, key);
  edit(app, next, `${entry.name} deleted from the draft.`);
}

/** Moves by places, or to an index; says where it is now. */
export function move(app, order, key, item, to) {
  const next = documents.moveIn(app.doc, order, key, item, to);
  if (documents.same(next, app.doc)) return;
  edit(app, next, "Order changed.");
  const keys = documents.orderOf(next, order, key);
  const owner = documents.poolOf(next, key) ?? documents.profileOf(next, key);
  announce(`${nameOf(app, item)} is ${keys.indexOf(item) + 1} of ${keys.length} in the ${order} order of ${owner.name}`);
}

export const nameOf = (app, item) =>
  (documents.poolOf(app.doc, item) ?? documents.profileOf(app.doc, item))?.name ??
  app.facts.queues[item]?.policy ??
  item;

/** What the order panel shows. */
export function select(app, { pool, profile }) {
  const { execution, routing, queuing } = app.selected;
  const selected = {
    execution: pool ?? execution,
    routing: profile ?? routing,
    queuing: profile ?? queuing,
  };
  if (!documents.same(selected, app.selected)) app.set({ selected });
}

/** Which cards are shown: a search that finds pools leaves all profiles, and the other way. */
export function found(app) {
  const wanted = app.query.trim().toLowerCase();
  const all = { pools: app.doc.pools, profiles: app.doc.profiles, isEmpty: false };
  if (!wanted) return all;
  const matching = (entries) => entries.filter((one) => one.name.toLowerCase().includes(wanted));
  const [pools, profiles] = [matching(all.pools), matching(all.profiles)];
  if (!pools.length && !profiles.length) return { pools: [], profiles: [], isEmpty: true };
  return {
    pools: pools.length ? pools : all.pools,
    profiles: profiles.length ? profiles : all.profiles,
    isEmpty: false,
  };
}
