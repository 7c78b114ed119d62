// What differs between two documents of the editor, as people speak of it. Pure.
import { linkOf, poolOf, profileOf, same } from "./document.js";

// Every field is compared; one without a label here is called by its name.
const LABELS = {
  replicas: "Members",
  is_dynamic: "Dynamic request",
  request_min: "Least request",
  request_max: "Most request",
  shm_mb: "Shared memory",
  read_only_root: "Read-only image",
  allow_streams: "Streams into tasks",
  extra_permissions: "Permissions",
};
// Compared as orders and links.
const REFERENCES = ["key", "pools", "profiles", "queues"];
const UNITS = { gpu: "GPU", cpu: "CPU", memory_mb: "MB", slot: "slots" };
const KEYS = Object.keys(UNITS);

/** The keys of amounts as people expect them: ours first, then by name. */
export function sortedKeys(keys) {
  const place = (key) => (KEYS.includes(key) ? KEYS.indexOf(key) : KEYS.length);
  return [...new Set(keys)].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/** `4 GPU · 32 CPU · 256 GB`; memory in GB from 1 GB on. */
export function amountsText(amounts) {
  const one = (key) => {
    const text = amounts[key];
    const gb = Math.floor((Number(text) / 1024) * 10) / 10;
    return key === "memory_mb" && gb >= 1 ? `${gb} GB` : `${text} ${UNITS[key] ?? key}`;
  };
  return sortedKeys(Object.keys(amounts)).map(one).join(" · ");
}

/** A value of a field in words; an en dash for nothing. */
export function valueText(field, value) {
  if (value === null || value === undefined || value === "") {
    return field === "preemption" ? "as in the settings" : "–";
  }
  if (value === true || value === false) return value ? "yes" : "no";
  if (Array.isArray(value)) return value.join(", ") || "–";
  if (typeof value === "object") return amountsText(value) || "–";
  return String(value).replaceAll("_", " ");
}

/**
 * Every difference, in the order of the document.
 *
 * Each is `{kind, key, name, what, label, before, after, id}`: `kind` is settings, pools or
 * profiles, `what` is added, removed, changed, linked, unlinked, renamed or order; `id` is the same
 * for two changes of the same thing, so that those of two people can be compared; `pool` is the key
 * of the pool where the change is one of a link.
 */
export function differences(before, after) {
  return [
    ...fields("settings", "", "Settings", before.settings, after.settings),
    ...entries("pools", before, after, ofPool),
    ...entries("profiles", before, after, ofProfile),
  ];
}

function* entries(kind, before, after, inside) {
  const [old, now] = [before[kind], after[kind]];
  for (const entry of old) {
    if (!now.some((one) => one.key === entry.key)) yield whole(kind, entry, "removed");
  }
  for (const entry of now) {
    const was = old.find((one) => one.key === entry.key);
    if (was) yield* inside(before, after, was, entry);
    else yield whole(kind, entry, "added");
  }
}

function whole(kind, entry, what) {
  const { key, name } = entry;
  const label = what === "added" ? "New" : "Removed";
  return { kind, key, name, what, label, before: "", after: "", id: `${key} entry` };
}

function labelOf(field) {
  const words = field.replaceAll("_", " ");
  return LABELS[field] ?? words[0].toUpperCase() + words.slice(1);
}

function* fields(kind, key, name, before, after) {
  for (const field of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (REFERENCES.includes(field) || same(before[field] ?? null, after[field] ?? null)) continue;
    const label = labelOf(field);
    const [old, now] = [before[field], after[field]].map((value) => valueText(field, value));
    yield { kind, key, name, what: "changed", label, before: old, after: now, id: `${key} ${field}` };
  }
}

function* ofPool(before, after, was, pool) {
  yield* fields("pools", pool.key, pool.name, was, pool);
  const name = (key) => profileOf(after, key)?.name ?? "";
  yield* order("pools", pool, "Execution order", was.profiles, pool.profiles, name);
}

function* ofProfile(before, after, was, profile) {
  const { key, name } = profile;
  yield* fields("profiles", key, name, was, profile);
  for (const link of profile.pools) {
    const old = linkOf(was, link.pool);
    const pool = poolOf(after, link.pool).name;
    const id = `${key} link ${link.pool}`;
    if (!old) yield { kind: "profiles", key, name, what: "linked", label: "Link added", before: "", after: pool, pool: link.pool, id };
    else if (old.name !== link.name && !(followed(before, link.pool, old.name) && link.name === pool)) {
      yield { kind: "profiles", key, name, what: "renamed", label: "Link name", before: old.name, after: link.name, pool: link.pool, id };
    }
  }
  for (const link of was.pools) {
    // The pool that left says so itself.
    if (linkOf(profile, link.pool) || !poolOf(after, link.pool)) continue;
    const pool = poolOf(before, link.pool).name;
    const id = `${key} link ${link.pool}`;
    yield { kind: "profiles", key, name, what: "unlinked", label: "Link removed", before: pool, after: "", pool: link.pool, id };
  }
  const poolName = (pool) => poolOf(after, pool)?.name ?? "";
  const pools = [was, profile].map((one) => one.pools.map((link) => link.pool));
  yield* order("profiles", profile, "Routing order", ...pools, poolName);
  yield* order("profiles", profile, "Queuing order", was.queues, profile.queues, (queue) => queue);
}

/** Whether a link was called as its pool: then it is so still, and the pool's rename says it. */
const followed = (before, poolKey, name) => poolOf(before, poolKey)?.name === name;

/** What came or went does not make an order another one. */
function* order(kind, { key, name }, label, before, after, nameOf) {
  const old = before.filter((one) => after.includes(one));
  const now = after.filter((one) => before.includes(one));
  if (same(old, now)) return;
  const [was, is] = [old, now].map((keys) => keys.map(nameOf));
  yield { kind, key, name, what: "order", label, before: was.join(", "), after: is.join(", "), lists: [was, is], id: `${key} ${label}` };
}

/** Per key of an entry what is to be said at its card: "New", or old values of its fields. */
export function marks(list) {
  const found = new Map();
  for (const change of list) {
    if (!found.has(change.key)) found.set(change.key, []);
    found.get(change.key).push(change);
  }
  return found;
}

/**
 * The rank that an item had in an order, 0 for what is new there; null where it did not move. What
 * only closes a gap, or gives way to a new item, did not move.
 */
export function rankBefore(oldKeys, item, newKeys) {
  if (!oldKeys) return null;
  if (!oldKeys.includes(item)) return 0;
  const old = oldKeys.filter((key) => newKeys.includes(key));
  const now = newKeys.filter((key) => oldKeys.includes(key));
  return old.indexOf(item) === now.indexOf(item) ? null : oldKeys.indexOf(item) + 1;
}

/** One change as a sentence. */
export function sentence(change) {
  const { name, what, label, before, after } = change;
  if (what === "added") return `${name} is new`;
  if (what === "removed") return `${name} is removed`;
  if (what === "linked") return `${name}: connected to ${after}`;
  if (what === "unlinked") return `${name}: disconnected from ${before}`;
  if (what === "order") return `${name}: ${label.toLowerCase()} is now ${after}`;
  return `${name}: ${label.toLowerCase()} is now “${after}”, was “${before}”`;
}
