// The dialog of a profile.
import { html, nothing } from "../../vendor/lit/lit-html.js";
import { select } from "./app.js";
import { addProfile, editProfile, newKey, NEW_PROFILE, profileOf } from "./document.js";
import { amounts, amountsFrom, BUILT_IN, flag, foot, head, lines, listFrom, ofList, text, wrong } from "./fields.js";
import { checkAndEdit } from "./pool-form.js";

export function profileDialog(app) {
  const { key, errors } = app.dialog;
  const profile = key ? profileOf(app.doc, key) : NEW_PROFILE;
  const isDynamic = app.dialog.isDynamic ?? profile.is_dynamic;
  const keys = new Set([...BUILT_IN, ...Object.keys(profile.request), ...app.doc.pools.flatMap((pool) => Object.keys(pool.capacity))]);
  const onDynamic = (event) => app.set({ dialog: { ...app.dialog, isDynamic: event.target.checked } });
  return html`<form @submit=${(event) => submit(app, event)} novalidate>
    ${head(key ? `Edit profile ${profile.name}` : "Add profile")} ${wrong(errors.detail)}
    <div class="grid gap-4 mt-4">
      ${text({ name: "name", label: "Name", value: profile.name, error: errors.name, isFirst: true })}
      <fieldset class="grid gap-2">
        <legend class="font-semibold">Request</legend>
        <p class="text-xs text-ink-3">What one member takes: 4, or a share of one GPU such as 0.5 or 1/7.</p>
        ${wrong(errors.request)}
        <div class="grid grid-cols-2 md:grid-cols-4 gap-3">${amounts({ prefix: "request", keys, value: profile.request, errors, suffix: isDynamic ? ", default" : "" })}</div>
        ${flag({ name: "is_dynamic", label: "Dynamic: a task may bring its own request", value: isDynamic, help: "The request above is then the default.", onChange: onDynamic })}
        ${wrong(errors.is_dynamic)} ${isDynamic ? range(profile, keys, errors) : nothing}
      </fieldset>
      ${lines({ name: "description", label: "Description", value: profile.description, error: errors.description, isOptional: true })}
      <details ?open=${hasMore(profile) || Object.keys(errors).some((name) => name in MORE || name.includes("["))}>
        <summary class="font-semibold cursor-pointer">Members, devices, volumes and permissions</summary>
        ${more(app, profile, errors)}
      </details>
    </div>
    ${foot(app, key ? "Apply to the draft" : "Add profile")}
  </form>`;
}

const range = (profile, keys, errors) => html`
  <p class="text-xs text-ink-3">The least and the most that a task may ask for; an empty field is no bound.</p>
  <div class="grid grid-cols-2 md:grid-cols-4 gap-3">${amounts({ prefix: "request_min", keys, value: profile.request_min, errors, suffix: ", minimum" })}</div>
  <div class="grid grid-cols-2 md:grid-cols-4 gap-3">${amounts({ prefix: "request_max", keys, value: profile.request_max, errors, suffix: ", maximum" })}</div>`;

const MORE = { replicas: 1, shm_mb: null, device_models: [], volumes: [], extra_permissions: [], host_network: false, read_only_root: false, allow_streams: true };
const hasMore = (profile) => Object.entries(MORE).some(([name, usual]) => String(profile[name] ?? "") !== String(usual ?? ""));

function more(app, profile, errors) {
  const { volumes, permissions } = app.choices;
  return html`<div class="grid md:grid-cols-2 gap-4 mt-3">
    ${text({ name: "replicas", label: "Members", value: profile.replicas, error: errors.replicas, help: "Of one task; all start together or not at all.", mode: "numeric" })}
    ${text({ name: "shm_mb", label: "Shared memory in MB", value: profile.shm_mb, error: errors.shm_mb, help: "Empty: half the memory.", mode: "numeric", isOptional: true })}
    ${lines({ name: "device_models", label: "Device models", value: profile.device_models, error: ofList(errors, "device_models"), help: "One per line; empty: any.", isOptional: true })}
    ${lines({ name: "volumes", label: "Volumes", value: profile.volumes, error: ofList(errors, "volumes"), help: volumes.length ? `One per line. There are: ${volumes.join(", ")}.` : "One per line. There is no volume yet.", isOptional: true })}
    ${lines({ name: "extra_permissions", label: "Permissions beyond the usual", value: profile.extra_permissions, error: ofList(errors, "extra_permissions"), help: `One per line: ${permissions[0]}, capability:NAME or device:/dev/PATH; empty: nothing.`, isOptional: true })}
    <div class="grid gap-3 content-start">
      ${flag({ name: "host_network", label: "Host network", value: profile.host_network, help: "Tasks use the node's own network." })}
      ${flag({ name: "read_only_root", label: "Read-only image", value: profile.read_only_root, help: "The image's file system cannot be written to." })}
      ${flag({ name: "allow_streams", label: "Streams into tasks", value: profile.allow_streams, help: "Commands, terminals, ports and copies are allowed in running tasks." })}
    </div>
  </div>`;
}

async function submit(app, event) {
  event.preventDefault();
  if (app.dialog.isBusy) return;
  const { key = newKey() } = app.dialog;
  const form = new FormData(event.target);
  const wrongNumbers = ["replicas", "shm_mb"].filter((name) => !/^\d*$/.test(form.get(name).trim()));
  if (wrongNumbers.length || !form.get("replicas").trim()) {
    const errors = Object.fromEntries([...wrongNumbers, ...(form.get("replicas").trim() ? [] : ["replicas"])].map((name) => [name, "must be a whole number"]));
    app.set({ dialog: { ...app.dialog, errors } });
    return;
  }
  const values = valuesOf(form);
  const isNew = !profileOf(app.doc, key);
  const doc = isNew ? addProfile(app.doc, values, key) : editProfile(app.doc, key, values);
  await checkAndEdit(app, doc, "profiles", key);
  if (!app.dialog) select(app, { profile: key });
}

function valuesOf(form) {
  const isDynamic = form.has("is_dynamic");
  const shm = form.get("shm_mb").trim();
  return {
    name: form.get("name").trim(),
    description: form.get("description").trim(),
    request: amountsFrom(form, "request"),
    replicas: Number(form.get("replicas")),
    is_dynamic: isDynamic,
    request_min: isDynamic ? amountsFrom(form, "request_min") : {},
    request_max: isDynamic ? amountsFrom(form, "request_max") : {},
    device_models: listFrom(form, "device_models"),
    volumes: listFrom(form, "volumes"),
    shm_mb: shm ? Number(shm) : null,
    host_network: form.has("host_network"),
    read_only_root: form.has("read_only_root"),
    allow_streams: form.has("allow_streams"),
    extra_permissions: listFrom(form, "extra_permissions"),
  };
}
