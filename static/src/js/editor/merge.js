// Two people's changes of one document put together, three-way: base, theirs, ours. Pure.
import { differences } from "./differences.js";
import { poolOf, same } from "./document.js";

/** The entries that a change needs: its own, and the pool that it links. */
const touches = ({ what, key, pool }) => (pool && what !== "unlinked" ? [key, pool] : [key]);

/** Whether of two people's changes only one can hold: both change the same, or one removes it. */
export function clash(one, other) {
  const isGone = (removal, change) => removal.what === "removed" && touches(change).includes(removal.key);
  return one.id === other.id || isGone(one, other) || isGone(other, one);
}

/**
 * Both people's changes in one document: field by field and link by link what one of them changed,
 * and where their changes clash, ours. What they removed and we changed is there again.
 */
export function merged(base, theirs, ours) {
  const touched = new Set(differences(base, ours).flatMap(touches));
  const docs = [base, theirs, ours].map(withoutNames);
  const theirPools = new Set(theirs.pools.map((pool) => pool.key));
  const lists = (...three) => ({ pools: links(three, theirPools), queues: queues(three) });
  const together = {
    settings: fields(base.settings, theirs.settings, ours.settings),
    pools: entries("pools", docs, touched, () => ({})),
    profiles: entries("profiles", docs, touched, lists),
  };
  return inOrder(withNames(together), docs);
}

function entries(kind, docs, touched, lists) {
  const [was, their, our] = docs.map((doc) => new Map(doc[kind].map((one) => [one.key, one])));
  const stays = (key) => !was.has(key) || (our.has(key) && (their.has(key) || touched.has(key)));
  return [...new Set([...their.keys(), ...our.keys()])].filter(stays).map((key) => {
    const three = [was.get(key), their.get(key), our.get(key)];
    if (!three[1] || !three[2]) return three[1] ?? three[2];
    return { ...fields(...three), ...lists(...three) };
  });
}

const fields = (was, their, our) =>
  Object.fromEntries(Object.keys(our).map((field) => [field, pick(was?.[field], their[field], our[field])]));

const pick = (was, their, our) => (same(our, was) ? their : our);

function links([was, their, our], theirPools) {
  const [old, now, mine] = [was, their, our].map((one) => new Map((one?.pools ?? []).map((link) => [link.pool, link])));
  const found = new Map();
  for (const key of new Set([...now.keys(), ...mine.keys()])) {
    // That their links left together with their pool says nothing where the pool stays.
    const other = theirPools.has(key) ? now.get(key) : old.get(key);
    const link = pick(old.get(key), other, mine.get(key));
    if (link) found.set(key, link);
  }
  return ordered([old, now, mine].map((one) => [...one.keys()]), found).map((key) => found.get(key));
}

function queues(three) {
  const orders = three.map((one) => one?.queues ?? []);
  const members = orders.flat().filter((key) => pick(...orders.map((order) => order.includes(key))));
  return ordered(orders, new Set(members));
}

/** Our order where we moved something, else theirs; what only the other has keeps its successor. */
function ordered([was, their, our], members) {
  const isMoved = !same(was.filter((key) => our.includes(key)), our.filter((key) => was.includes(key)));
  const [first, second] = isMoved ? [our, their] : [their, our];
  const found = first.filter((key) => members.has(key));
  for (const [index, key] of [...second.entries()].reverse()) {
    if (!members.has(key) || found.includes(key)) continue;
    const next = second.slice(index + 1).find((one) => found.includes(one));
    found.splice(next === undefined ? found.length : found.indexOf(next), 0, key);
  }
  return found;
}

/** A link that is called as its pool has no name of its own: a renamed pool changes no link. */
function withoutNames(doc) {
  const name = (link) => (poolOf(doc, link.pool)?.name === link.name ? null : link.name);
  return {
    ...doc,
    profiles: doc.profiles.map((one) => ({ ...one, pools: one.pools.map((link) => ({ ...link, name: name(link) })) })),
  };
}

/** The names again, of links to pools that are there. */
function withNames(doc) {
  const names = new Map(doc.pools.map((pool) => [pool.key, pool.name]));
  const named = (link) => ({ ...link, name: link.name ?? names.get(link.pool) });
  const linked = (profile) => profile.pools.filter((link) => names.has(link.pool)).map(named);
  return { ...doc, profiles: doc.profiles.map((one) => ({ ...one, pools: linked(one) })) };
}

/** Each linked profile in its pool's execution order exactly once. */
function inOrder(doc, docs) {
  const pools = doc.pools.map((pool) => {
    const linking = doc.profiles.filter((one) => one.pools.some((link) => link.pool === pool.key));
    const orders = docs.map((one) => poolOf(one, pool.key)?.profiles ?? []);
    return { ...pool, profiles: ordered(orders, new Set(linking.map((one) => one.key))) };
  });
  return { ...doc, pools };
}
