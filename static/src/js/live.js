// Cards that change by themselves: every `[data-live]` element is one. The socket pushes a card's
// whole HTML when it changed and the page morphs it in place. While the socket is down the page
// asks every ten seconds, and says so. A card with `[data-refreshed]` in it shows what changes
// without a message, such as the last answer of a node: the page asks for it all the time.
import { reloadPage } from "./page-reload.js";
import { morph } from "./morph.js";

const POLL_MS = 10_000;
const REFRESH_MS = 10_000;
const BELL = "notice_bell";
const BELL_MS = 60_000;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;
const ANNOUNCE_MS = 5_000;
// Close codes of the server; the same as in apps/dashboard/consumers.py.
const NOT_SIGNED_IN = 4401;
const PERMISSIONS_CHANGED = 4403;
const TOO_MANY = 4429;

const root = document.documentElement;
const cards = () => [...document.querySelectorAll("[data-live]")];
const named = (name) => document.querySelectorAll(`[data-live="${CSS.escape(name)}"]`);
let socket = null;
let retryMs = FIRST_RETRY_MS;
let pollTimer = 0;
let failures = 0;
let isLeaving = false;
const announcements = new Set();
let announceTimer = 0;

function setState(state) {
  root.dataset.liveState = state;
  const words = { live: "Live", polling: "Every 10 s", connecting: "Connecting" };
  for (const place of document.querySelectorAll("[data-live-word]")) {
    place.textContent = words[state];
  }
}

function showAnswerTime() {
  for (const place of document.querySelectorAll("[data-live-answered]")) {
    place.textContent = new Date().toLocaleTimeString(undefined, { hourCycle: "h23" });
  }
}

function announce(card) {
  if (!card.dataset.announce) return;
  announcements.add(card.dataset.announce);
  announceTimer ||= setTimeout(() => {
    announceTimer = 0;
    const region = document.getElementById("live-region");
    if (region) region.textContent = [...announcements].join(". ");
    announcements.clear();
  }, ANNOUNCE_MS);
}

function numbersOf(card) {
  return new Map([...card.querySelectorAll("[data-num]")].map((n) => [n.dataset.num, n.textContent]));
}

function tintChanges(card, before) {
  for (const number of card.querySelectorAll("[data-num]")) {
    const old = before.get(number.dataset.num);
    if (old === undefined || old === number.textContent) continue;
    number.classList.remove("is-changed");
    void number.offsetWidth; // Restarts the animation.
    number.classList.add("is-changed");
    number.addEventListener("animationend", () => number.classList.remove("is-changed"), {
      once: true,
    });
  }
}

// Cards that arrived while a row of theirs was held under the pointer.
const kept = new Map();
addEventListener("rpm:release", () => {
  const waiting = [...kept];
  kept.clear();
  for (const [name, html] of waiting) replace(name, html);
});

function replace(name, html) {
  if ([...named(name)].some((card) => card.querySelector("[data-held]"))) {
    kept.set(name, html);
    return;
  }
  for (const card of named(name)) {
    const before = numbersOf(card);
    const said = card.dataset.announce;
    const next = document.createElement("template");
    next.innerHTML = html;
    morph(card, next.content, "outerHTML");
    for (const fresh of named(name)) {
      window.htmx.process(fresh);
      tintChanges(fresh, before);
      if (fresh.dataset.announce !== said) announce(fresh);
    }
  }
  dispatchEvent(new CustomEvent("rpm:card", { detail: name }));
}

/** Where a page leads when what its card shows is gone; without it, it begins again. */
function placeAfter(card) {
  return card?.closest("[data-gone]")?.dataset.gone;
}

async function fetchCard(card, onEnd = reloadPage) {
  const reply = await fetch(card.dataset.liveUrl, {
    headers: { "If-None-Match": `"${card.dataset.version ?? ""}"` },
  });
  if (reply.status === 304) return;
  // Signed out meanwhile: the answer is the page to sign in, which is no card.
  if (reply.redirected) onEnd();
  else if (reply.ok) replace(card.dataset.live, await reply.text());
  else if (reply.status === 404 || reply.status === 403) reloadPage(placeAfter(card));
}

async function poll() {
  try {
    for (const card of cards()) await fetchCard(card);
    showAnswerTime();
  } catch {
    // No answer: the strip keeps the time of the last one.
  }
}

async function refresh() {
  // A poll asks for all cards, and a hidden page for none.
  if (document.hidden || pollTimer) return;
  for (const card of cards()) {
    if (card.querySelector("[data-refreshed]")) await fetchCard(card).catch(() => {});
  }
}

/** Get every card again, now or once the server answers again: the page may differ from it. */
export function refetch() {
  for (const card of cards()) delete card.dataset.version;
  return poll();
}

function watch() {
  const watched = cards().map((card) => ({
    card: card.dataset.live,
    version: card.dataset.version ?? "",
  }));
  socket.send(JSON.stringify({ type: "watch", cards: watched }));
}

function onMessage(message) {
  showAnswerTime();
  if (message.type === "card") replace(message.card, message.html);
  // What it shows is removed, or not ours to see any more: the page itself says which.
  else if (message.type === "gone") reloadPage(placeAfter(named(message.card)[0]));
}

function connect() {
  if (isLeaving) return;
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(`${scheme}//${location.host}/ws/live/`);
  socket.addEventListener("open", () => {
    retryMs = FIRST_RETRY_MS;
    failures = 0;
    clearInterval(pollTimer);
    pollTimer = 0;
    setState("live");
    watch();
  });
  socket.addEventListener("message", (event) => onMessage(JSON.parse(event.data)));
  socket.addEventListener("close", (event) => {
    if (event.code === NOT_SIGNED_IN || event.code === PERMISSIONS_CHANGED) {
      // Another page is due: begin again with the permissions of now.
      reloadPage();
      return;
    }
    if (event.code === TOO_MANY) {
      // The server opens a socket only to say so: ask by polling, and try again later.
      failures = 1;
      retryMs = LONGEST_RETRY_MS;
    }
    failures += 1;
    if (failures > 1) {
      setState("polling");
      pollTimer ||= setInterval(poll, POLL_MS);
    } else setState("connecting");
    setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
    retryMs = Math.min(LONGEST_RETRY_MS, retryMs * 2);
  });
}

/** A page that shows nothing else live, such as a form, has no socket that could reload it. */
function startBell() {
  const ignore = () => {};
  const ask = () => {
    if (!document.hidden) for (const card of cards()) fetchCard(card, ignore).catch(ignore);
  };
  setInterval(ask, BELL_MS);
  document.addEventListener("visibilitychange", ask);
  ask();
}

export function startLive() {
  if (!cards().length) return;
  if (cards().every((card) => card.dataset.live === BELL)) {
    startBell();
    return;
  }
  setState("connecting");
  showAnswerTime();
  addEventListener("pagehide", () => {
    isLeaving = true;
    socket?.close();
  });
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    isLeaving = false;
    connect();
  });
  setInterval(refresh, REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  document.body.addEventListener("htmx:afterSettle", () => {
    if (socket?.readyState === WebSocket.OPEN) watch();
  });
  connect();
}
