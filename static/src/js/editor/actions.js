// What goes to the server: save, validate, preview, provision, reset; and leaving.
import { closeDialog, openDialog, say, take, takeFacts } from "./app.js";
import { differences } from "./differences.js";
import { fromData, same, toData } from "./document.js";
import { merged } from "./merge.js";
import { count } from "./parts.js";
import { locate, request } from "./rest.js";

const FORBIDDEN = 403;
const STALE = 412;
const LOST = "The server did not answer. The change may have been made: check before you try again.";

/** One request at a time; `name` is the button that is busy. */
async function busy(app, name, step) {
  if (app.busy) return undefined;
  app.set({ busy: name, turn: app.turn + 1 });
  try {
    return await step();
  } finally {
    app.set({ busy: "", turn: app.turn + 1 });
  }
}

/** Signing in again, in another tab, made the page's CSRF token void: then once more with a new one. */
async function send(app, url, options) {
  const once = () => request(url, { method: "POST", csrf: app.csrf, ...options });
  const answer = await once();
  if (answer.status !== FORBIDDEN) return answer;
  const state = await request(app.urls.state);
  if (!state.isOk) return state.status ? answer : state;
  app.csrf = state.data.csrf;
  return once();
}

/** As `send`; where it is not known whether it was done, the page fetches the current state. */
async function write(app, url, options) {
  const answer = await send(app, url, options);
  if (answer.status && answer.status < 500) return answer;
  const state = await request(app.urls.state);
  if (state.isOk) settle(app, state.data);
  if (answer.isLost) answer.data.detail = LOST;
  return answer;
}

/** Saves the document in the page. Answers whether it is saved. */
export const save = (app) => busy(app, "save", () => put(app, app.doc));

async function put(app, doc) {
  const answer = await write(app, app.urls.draft, { method: "PUT", body: toData(doc), version: app.version });
  if (answer.status === STALE) return conflict(app, answer.data.detail);
  if (!answer.isOk) return refuse(app, doc, answer);
  const saved = fromData(answer.data);
  // What was changed while the request was under way stays unsaved.
  const next = app.doc === doc ? { doc: saved } : {};
  app.set({ ...next, saved, version: answer.version, latest: answer.version });
  app.set({ savedAt: new Date().toISOString(), savedBy: app.me });
  say(app, "Saved. It is not live until you provision.");
  return true;
}

/** Another user saved since: says who changed what, keeps ours, writes over nothing. */
async function conflict(app, detail) {
  const answer = await request(app.urls.state);
  if (!answer.isOk) {
    say(app, detail, null, true);
    return false;
  }
  const theirs = fromData(answer.data.draft);
  const changes = [theirs, app.doc].map((doc) => differences(app.saved, doc));
  if (!changes[0].length || same(theirs, app.doc)) {
    // Nothing is to be put together: what they saved is what was read here, or what is here.
    takeFacts(app, answer.data);
    app.set({ saved: theirs, version: answer.data.version });
    const who = answer.data.saved_by ?? "Another person";
    // Then Save is off, as after one's own.
    const isSaved = app.busy === "save" && !app.isDirty;
    if (isSaved) say(app, `${who} has saved the same changes. Nothing is left to save.`);
    else say(app, `${who} saved meanwhile, and nothing of it differs. Try again.`);
    return isSaved;
  }
  openDialog(app, "conflict", { detail, state: answer.data, theirs, changes });
  return false;
}

function refuse(app, doc, answer) {
  const fields = Object.entries(answer.data.fields ?? {});
  const findings = fields.map(([path, text]) => locate(doc, path, text, true));
  app.set({ findings: findings.length ? findings : app.findings });
  say(app, answer.data.detail, null, true);
  return false;
}

/** Throws ours away and goes on from what the other person saved. */
export function takeTheirs(app) {
  const { state } = app.dialog;
  closeDialog(app);
  take(app, state);
  say(app, "You see the draft as it was saved last; your changes are gone.");
}

/** Both people's changes, unsaved; where they clash, ours. */
export function takeBoth(app) {
  const { state, theirs } = app.dialog;
  const doc = merged(app.saved, theirs, app.doc);
  closeDialog(app);
  take(app, state);
  app.set({ doc });
  say(app, "Both are in the page now. Look at them, then save.");
}

/** Ours instead of what was saved, knowing what that throws away. */
export async function overwrite(app) {
  app.set({ version: app.dialog.state.version });
  closeDialog(app);
  await save(app);
}

/** Findings of the document in the page, saved or not. Answers whether it has no error. */
export const validate = (app) =>
  busy(app, "validate", async () => {
    const doc = app.doc;
    const answer = await send(app, app.urls.validate, { body: toData(doc) });
    if (!answer.isOk) return refuse(app, doc, answer);
    const side = (list, isError) => list.map((one) => locate(doc, one.path, one.detail, isError, one.code));
    const findings = [...side(answer.data.errors, true), ...side(answer.data.warnings, false)];
    const errors = answer.data.errors.length;
    if (app.doc === doc) app.set({ findings });
    say(app, verdict(errors, answer.data.warnings.length), null, errors > 0);
    return errors === 0;
  });

function verdict(errors, warnings) {
  if (!errors && !warnings) return "No errors and no warnings.";
  return `${count(errors, "error")}, ${count(warnings, "warning")}; each stands at its card.`;
}

/** What is wrong with one entry as the server says it: per field of it a sentence. */
export async function problemsOf(app, doc, kind, key) {
  const answer = await send(app, app.urls.validate, { body: toData(doc) });
  const start = `${kind}[${doc[kind].findIndex((one) => one.key === key)}].`;
  if (answer.isOk) return ownFaults(answer.data.errors, start);
  const fields = Object.entries(answer.data.fields ?? {});
  const own = fields.filter(([path]) => path.startsWith(start));
  const errors = Object.fromEntries(own.map(([path, text]) => [path.slice(start.length), text]));
  return own.length || fields.length ? errors : { detail: answer.data.detail };
}

/**
 * Of errors that Validate finds only what lies in the entry alone: what is missing around it, such as
 * a link that comes next, must not prevent adding it.
 */
function ownFaults(errors, start) {
  const own = errors.filter((one) => one.path.startsWith(`${start}capacity.`));
  return Object.fromEntries(own.map((one) => [one.path.slice(start.length), one.detail]));
}

/** Shows what provisioning would do. Nothing is applied. */
export async function preview(app, { isProvision = false } = {}) {
  const doc = app.doc;
  openDialog(app, "preview", { isProvision, doc, isLoading: true });
  const mine = app.dialog;
  const [effect, checked] = await Promise.all([
    send(app, app.urls.preview, { body: toData(doc) }),
    send(app, app.urls.validate, { body: toData(doc) }),
  ]);
  if (app.dialog !== mine) return;
  app.set({ dialog: { ...mine, isLoading: false, effect, checked, at: new Date() } });
}

/** Makes the saved draft live. */
export const provision = (app, note) =>
  busy(app, "provision", async () => {
    const answer = await write(app, app.urls.provision, { body: { note }, version: app.version });
    if (answer.status === STALE) return conflict(app, answer.data.detail);
    if (!answer.isOk) {
      app.set({ dialog: { ...app.dialog, refused: answer.data.detail } });
      return false;
    }
    closeDialog(app);
    await refresh(app);
    say(app, `Revision ${answer.data.number} is live.`);
    return true;
  });

/** Saved and unsaved changes are discarded; the draft is what is live. */
export const reset = (app) =>
  busy(app, "reset", async () => {
    const answer = await write(app, app.urls.reset, { version: app.version });
    if (answer.status === STALE) return conflict(app, answer.data.detail);
    closeDialog(app);
    if (!answer.isOk) return refuse(app, app.doc, answer);
    const state = await request(app.urls.state);
    if (state.isOk) take(app, state.data);
    say(app, "The draft is what is live. All changes are gone.");
    return true;
  });

/** Fetch figures and what is live again; the document too where nothing is unsaved. */
export async function refresh(app) {
  const { turn } = app;
  const answer = await request(app.urls.state);
  // What was read before a save, or during one, is no longer so.
  if (answer.isOk && app.turn === turn && app.busy !== "save") settle(app, answer.data);
}

function settle(app, state) {
  if (state.version < app.version) return;
  const isTheirs = state.version !== app.version;
  const isBusy = app.dialog !== null || app.editing !== null || app.isDragging;
  const isOurs = isTheirs && same(fromData(state.draft), app.doc);
  if (isOurs || (isTheirs && !app.isDirty && !isBusy)) take(app, state);
  else takeFacts(app, state);
}

/** Leaves for another page; asks where something is unsaved. */
export function leave(app, href) {
  if (app.isDirty) openDialog(app, "leave", { href });
  else go(app, href);
}

export function go(app, href) {
  app.isLeaving = true;
  location.assign(href);
}

export async function saveAndGo(app, href) {
  closeDialog(app);
  if (await save(app)) go(app, href);
}
