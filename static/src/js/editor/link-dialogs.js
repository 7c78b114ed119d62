// The dialogs of links: connecting without dragging, and the name of a link.
import { html } from "../../vendor/lit/lit-html.js";
import { closeDialog, disconnect, edit, select } from "./app.js";
import { connect, linkOf, linkProblem, poolOf, profileOf, renameLink } from "./document.js";
import { focusWrong, foot, head, text, wrong } from "./fields.js";
import { count, ordinal } from "./parts.js";

/** One or several pools of one profile, or profiles of one pool; the name only for a single one. */
export function connectDialog(app) {
  const { profile, pool, errors, chosen = pool && profile ? [pool] : [] } = app.dialog;
  const isOfProfile = Boolean(profile);
  const owner = isOfProfile ? profileOf(app.doc, profile) : poolOf(app.doc, pool);
  const others = isOfProfile ? app.doc.pools : app.doc.profiles;
  const free = others.filter((one) => !isLinked(app, isOfProfile, owner.key, one.key));
  const first = isOfProfile && chosen.length === 1 ? poolOf(app.doc, chosen[0]) : isOfProfile ? null : owner;
  const onChoose = (event) => {
    const given = [...event.currentTarget.querySelectorAll("input:checked")].map((one) => one.value);
    app.set({ dialog: { ...app.dialog, chosen: given, errors: {} } });
  };
  return html`<form @submit=${(event) => submitConnect(app, event, isOfProfile, owner.key)} novalidate>
    ${head(isOfProfile ? `Connect pools to ${owner.name}` : `Connect profiles to ${owner.name}`)}
    ${wrong(errors.detail)}
    <fieldset class="mt-4 grid gap-1 max-h-[44vh] overflow-y-auto" @change=${onChoose}>
      <legend class="font-semibold mb-1">${isOfProfile ? "Pools" : "Profiles"}</legend>
      ${others.map((one, index) => option(app, { isOfProfile, owner, one, chosen, isFirst: free[0] === one, index }))}
      ${others.length ? "" : html`<p class="text-ink-3">There is none yet: add one first.</p>`}
    </fieldset>
    ${
      chosen.length === 1 && first
        ? html`<div class="mt-4">${text({ name: "name", label: "Name of the link", value: first.name, error: errors.name, help: "Unique within the profile; usually the pool's name." })}</div>`
        : ""
    }
    ${foot(app, chosen.length > 1 ? `Connect ${chosen.length}` : "Connect")}
  </form>`;
}

function option(app, { isOfProfile, owner, one, chosen, isFirst, index }) {
  const isThere = isLinked(app, isOfProfile, owner.key, one.key);
  const profile = isOfProfile ? owner : one;
  const place = isThere ? "connected already" : `would be its ${ordinal(profile.pools.length + 1)} choice`;
  return html`<div class="check py-1">
    <input type="checkbox" id=${`c-${index}`} value=${one.key} ?disabled=${isThere} .checked=${chosen.includes(one.key)} ?autofocus=${isFirst} />
    <label for=${`c-${index}`} class="grow flex gap-2 min-w-0"><span class="truncate" title=${one.name}>${one.name}</span><span class="ml-auto text-xs text-ink-3 whitespace-nowrap">${place}</span></label>
  </div>`;
}

function isLinked(app, isOfProfile, ownerKey, otherKey) {
  const [profile, pool] = isOfProfile ? [ownerKey, otherKey] : [otherKey, ownerKey];
  return Boolean(linkOf(profileOf(app.doc, profile), pool));
}

function submitConnect(app, event, isOfProfile, ownerKey) {
  event.preventDefault();
  const form = new FormData(event.target);
  const { chosen = app.dialog.pool && app.dialog.profile ? [app.dialog.pool] : [] } = app.dialog;
  if (!chosen.length) return fail(app, { detail: "Choose at least one." });
  let doc = app.doc;
  for (const other of chosen) {
    const [profile, pool] = isOfProfile ? [ownerKey, other] : [other, ownerKey];
    const name = chosen.length === 1 ? form.get("name") : poolOf(doc, pool).name;
    const problem = linkProblem(doc, profile, pool, name);
    if (problem) return fail(app, chosen.length === 1 ? { name: problem } : { detail: problem });
    doc = connect(doc, profile, pool, { name });
  }
  closeDialog(app);
  edit(app, doc, `${count(chosen.length, "link")} made.`);
  return select(app, isOfProfile ? { profile: ownerKey } : { pool: ownerKey });
}

/** The name of one link. */
export function linkDialog(app) {
  const { profile, pool, errors } = app.dialog;
  const [one, other] = [profileOf(app.doc, profile), poolOf(app.doc, pool)];
  const submit = (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name").trim();
    const problem = linkProblem(app.doc, profile, pool, name, { isRename: true });
    if (problem) return fail(app, { name: problem });
    closeDialog(app);
    return edit(app, renameLink(app.doc, profile, pool, name));
  };
  const cut = () => {
    closeDialog(app);
    disconnect(app, profile, pool);
  };
  return html`<form @submit=${submit} novalidate>
    ${head(`Link from ${one.name} to ${other.name}`)}
    <div class="mt-4">${text({ name: "name", label: "Name of the link", value: linkOf(one, pool).name, error: errors.name, help: "Unique within the profile.", isFirst: true })}</div>
    ${foot(app, "Apply to the draft", html`<button type="button" class="btn btn-danger btn-sm mr-auto" @click=${cut}>Disconnect</button>`)}
  </form>`;
}

function fail(app, errors) {
  app.set({ dialog: { ...app.dialog, errors } });
  focusWrong(app);
}
