// The configuration document as the editor holds it, and everything that can be done to it. Pure:
// every operation returns a new document and leaves the old one as it was, so undo keeps a pointer.
//
// Inside, pools and profiles refer to each other by key, never by name: a rename has nothing to
// follow. Outside (REST, YAML) they refer by name; `fromData` and `toData` translate.

/** A random UUID; `crypto.randomUUID` is missing where the site is not served over TLS. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [0, 8, 12, 16, 20].map((at, i) => hex.slice(at, [8, 12, 16, 20, 32][i])).join("-");
}

/** From the document of REST to that of the editor. */
export function fromData(data) {
  const keyed = (entries) => entries.map((entry) => ({ ...entry, key: entry.key || newKey() }));
  const pools = keyed(data.pools ?? []);
  const profiles = keyed(data.profiles ?? []);
  const poolKeys = new Map(pools.map((pool) => [pool.name.toLowerCase(), pool.key]));
  const profileKeys = new Map(profiles.map((one) => [one.name.toLowerCase(), one.key]));
  return {
    settings: { ...data.settings },
    pools: pools.map((pool) => ({
      ...pool,
      profiles: pool.profiles.map((name) => profileKeys.get(name.toLowerCase())),
    })),
    profiles: profiles.map((profile) => ({
      ...profile,
      pools: profile.pools.map((link) => ({
        pool: poolKeys.get(link.pool.toLowerCase()),
        name: link.name,
      })),
    })),
  };
}

/** From the document of the editor to that of REST. */
export function toData(doc) {
  const names = new Map([...doc.pools, ...doc.profiles].map((entry) => [entry.key, entry.name]));
  return {
    schema: 1,
    settings: doc.settings,
    pools: doc.pools.map((pool) => ({
      ...pool,
      profiles: pool.profiles.map((key) => names.get(key)),
    })),
    profiles: doc.profiles.map((profile) => ({
      ...profile,
      pools: profile.pools.map((link) => ({ pool: names.get(link.pool), name: link.name })),
    })),
  };
}

export const NEW_POOL = {
  name: "",
  description: "",
  capacity: {},
  backfill: true,
  preemption: "",
  allowed_images: [],
  dedicated_to: null,
  profiles: [],
};

export const NEW_PROFILE = {
  name: "",
  description: "",
  request: {},
  replicas: 1,
  is_dynamic: false,
  request_min: {},
  request_max: {},
  device_models: [],
  volumes: [],
  shm_mb: null,
  host_network: false,
  read_only_root: false,
  allow_streams: true,
  extra_permissions: [],
  pools: [],
  queues: [],
};

export const poolOf = (doc, key) => doc.pools.find((pool) => pool.key === key);
export const profileOf = (doc, key) => doc.profiles.find((profile) => profile.key === key);
export const linkOf = (profile, poolKey) => profile.pools.find((link) => link.pool === poolKey);

const changed = (entries, key, change) =>
  entries.map((entry) => (entry.key === key ? { ...entry, ...change(entry) } : entry));
const withPool = (doc, key, change) => ({ ...doc, pools: changed(doc.pools, key, change) });
const withProfile = (doc, key, change) => ({
  ...doc,
  profiles: changed(doc.profiles, key, change),
});

// --- pools and profiles ----------------------------------------------------------------------

/** New entries come last. */
export function addPool(doc, values, key = newKey()) {
  return { ...doc, pools: [...doc.pools, { key, ...NEW_POOL, ...values }] };
}

/** Links that were called as their pool are called as it still. */
export function editPool(doc, key, values) {
  const before = poolOf(doc, key).name;
  const after = values.name ?? before;
  const renamed = (link) =>
    link.pool === key && link.name === before ? { ...link, name: after } : link;
  return {
    ...withPool(doc, key, () => values),
    profiles: doc.profiles.map((profile) =>
      before === after ? profile : { ...profile, pools: profile.pools.map(renamed) },
    ),
  };
}

export function removePool(doc, key) {
  return {
    ...doc,
    pools: doc.pools.filter((pool) => pool.key !== key),
    profiles: doc.profiles.map((profile) => ({
      ...profile,
      pools: profile.pools.filter((link) => link.pool !== key),
    })),
  };
}

export function addProfile(doc, values, key = newKey()) {
  return { ...doc, profiles: [...doc.profiles, { key, ...NEW_PROFILE, ...values }] };
}

export function editProfile(doc, key, values) {
  return withProfile(doc, key, () => values);
}

export function removeProfile(doc, key) {
  return {
    ...doc,
    profiles: doc.profiles.filter((profile) => profile.key !== key),
    pools: doc.pools.map((pool) => ({
      ...pool,
      profiles: pool.profiles.filter((one) => one !== key),
    })),
  };
}

// --- links -----------------------------------------------------------------------------------

/** Why this link cannot be, as a sentence; empty where it can. A link may keep its own name. */
export function linkProblem(doc, profileKey, poolKey, name, { isRename = false } = {}) {
  const profile = profileOf(doc, profileKey);
  if (!profile || !poolOf(doc, poolKey)) return "Choose a profile and a pool.";
  if (!isRename && linkOf(profile, poolKey)) {
    return `${profile.name} is connected to this pool already.`;
  }
  if (!name.trim()) return "Give the link a name.";
  const wanted = name.trim().toLowerCase();
  const other = profile.pools.find(
    (link) => link.pool !== poolKey && link.name.toLowerCase() === wanted,
  );
  return other ? `${profile.name} has a link named “${other.name}” already.` : "";
}

/** The last choice of the profile, and the last that the pool serves, unless ranks are given. */
export function connect(doc, profileKey, poolKey, { name, routing, execution } = {}) {
  const link = { pool: poolKey, name: (name ?? poolOf(doc, poolKey).name).trim() };
  const linked = withProfile(doc, profileKey, (profile) => ({
    pools: inserted(profile.pools, link, routing),
  }));
  return withPool(linked, poolKey, (pool) => ({
    profiles: inserted(pool.profiles, profileKey, execution),
  }));
}

export function disconnect(doc, profileKey, poolKey) {
  const unlinked = withProfile(doc, profileKey, (profile) => ({
    pools: profile.pools.filter((link) => link.pool !== poolKey),
  }));
  return withPool(unlinked, poolKey, (pool) => ({
    profiles: pool.profiles.filter((key) => key !== profileKey),
  }));
}

export function renameLink(doc, profileKey, poolKey, name) {
  return withProfile(doc, profileKey, (profile) => ({
    pools: profile.pools.map((link) => (link.pool === poolKey ? { ...link, name } : link)),
  }));
}

// --- the three orders ------------------------------------------------------------------------

/** The keys of an order: `execution` of a pool, `routing` or `queuing` of a profile. */
export function orderOf(doc, order, key) {
  if (order === "execution") return poolOf(doc, key)?.profiles ?? [];
  if (order === "routing") return profileOf(doc, key)?.pools.map((link) => link.pool) ?? [];
  return profileOf(doc, key)?.queues ?? [];
}

/** Puts `item` at index `to` of an order; an index outside of it is its end. */
export function moveIn(doc, order, key, item, to) {
  const keys = orderOf(doc, order, key);
  if (!keys.includes(item)) return doc;
  const moved = inserted(keys.filter((one) => one !== item), item, Math.max(0, to));
  if (order === "execution") return withPool(doc, key, () => ({ profiles: moved }));
  if (order === "queuing") return withProfile(doc, key, () => ({ queues: moved }));
  return withProfile(doc, key, (profile) => ({
    pools: moved.map((pool) => linkOf(profile, pool)),
  }));
}

export function editSettings(doc, values) {
  return { ...doc, settings: { ...doc.settings, ...values } };
}

/** Whether two documents say the same; the order of an object's keys says nothing. */
export function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length && keys.every((key) => same(one[key], other[key]))
  );
}

function inserted(items, item, at = items.length) {
  return [...items.slice(0, at), item, ...items.slice(at)];
}
