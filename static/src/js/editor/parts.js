// Pieces that every part of the editor shows: icons, glyphs, chips, gauges.
import { html, nothing, svg } from "../../vendor/lit/lit-html.js";

const GLYPHS = { pools: "server", profiles: "box", policies: "users", settings: "sliders-horizontal" };
const KINDS = { pools: "pool", profiles: "profile", policies: "policy", settings: "wait" };
// The length of the gauge's half circle in its own units (radius 46).
const GAUGE_LENGTH = 144.51;
const ARC = "M10 56a46 46 0 0 1 92 0";
let sprite = "";

/** Where the icons are; once, before anything is rendered. */
export function useSprite(url) {
  sprite = url;
}

export const icon = (name, size = "") => html`<svg
  class=${size ? `i i-${size}` : "i"}
  fill="none"
  stroke="currentColor"
  stroke-linecap="round"
  stroke-linejoin="round"
  aria-hidden="true"
><use href=${`${sprite}#${name}`}></use></svg>`;

/** `kind` is pools, profiles, policies or settings. */
export const glyph = (kind) =>
  html`<span class=${`glyph k-${KINDS[kind]}`}>${icon(GLYPHS[kind], "sm")}</span>`;

export const chip = (kind, text, name = "") =>
  html`<span class=${`chip k-${kind}`}>${name ? icon(name) : nothing}${text}</span>`;

/** "New", or the rank that it had. */
export function wasChip(before) {
  if (before === null) return nothing;
  return chip("warn", before === 0 ? "New" : `was ${before}`);
}

export const runWait = (running, waiting, isSmall = false) => html`
  <span class="inline-flex items-center gap-1 text-ink-2"
    ><span class="text-use-line inline-grid">${icon("play", "xs")}</span>${running}
    <span class=${isSmall ? "sr-only" : ""}>running</span></span
  ><span class="inline-flex items-center gap-1 text-ink-2"
    ><span class="text-wait-line inline-grid">${icon("hourglass", "xs")}</span>${waiting}
    <span class=${isSmall ? "sr-only" : ""}>waiting</span></span
  >`;

/** Thousandths as the shortest decimal. */
export const milliText = (amount) => String(Math.round(amount) / 1000);

/** A stored amount in thousandths; shares are rounded down, as the server does. 0 with a unit, until it is saved. */
export function milli(text) {
  const [whole, part] = String(text ?? "0").split("/");
  const amount = part ? Math.floor((Number(whole) * 1000) / Number(part)) : Math.round(Number(whole) * 1000);
  return Number.isNaN(amount) ? 0 : amount;
}

/** Use of GPUs against what is configured in the draft, in thousandths. */
export function gauge({ reserved = 0, over = 0, usable = 0 }, configured) {
  const top = Math.max(configured, usable, 1);
  const length = (part) => (Math.min(part / top, 1) * GAUGE_LENGTH).toFixed(2);
  const missing = usable && usable < configured ? configured - usable : 0;
  const label = `${milliText(reserved + over)} of ${milliText(configured)} GPU in use, ${milliText(over)} of them over quota`;
  const arc = (name, dashes) =>
    svg`<path class=${name} d=${ARC} stroke-dasharray=${dashes}></path>`;
  return html`<svg class="gauge" width="112" viewBox="0 0 112 66" role="img" aria-label=${label}>
    <path class="g-track" d=${ARC}></path>
    ${arc("g-over", `${length(reserved + over)} 400`)} ${arc("g-res", `${length(reserved)} 400`)}
    ${missing ? arc("g-drift", `0 ${length(top - missing)} ${length(missing)} 400`) : nothing}
    <text x="56" y="54" font-size="24">${milliText(reserved + over)}</text>
    <text class="of" x="56" y="65.5" font-size="10.5">of ${milliText(configured)} GPU</text>
  </svg>`;
}

/** A bar of pieces, each `[class, amount]`; the rest up to `whole` is the ground. */
export function bar(pieces, whole, { label, mark = 0, isSmall = true } = {}) {
  const share = (amount) => `${whole > 0 ? (Math.min(amount / whole, 1) * 100).toFixed(2) : 0}%`;
  let at = 0;
  const shapes = pieces.map(([kind, amount]) => {
    const shape = svg`<rect class=${`seg-${kind}`} x=${share(at)} width=${share(amount)} height="100%"></rect>`;
    at += amount;
    return amount > 0 ? shape : nothing;
  });
  return html`<svg class=${isSmall ? "bar bar-xs" : "bar"} role="img" aria-label=${label}>
    ${shapes}${mark ? svg`<rect class="mark" x=${share(mark)} y="-3" width="2" height=${isSmall ? 10 : 14}></rect>` : nothing}
  </svg>`;
}

/** `4 GPU`, or for a profile without GPUs its largest other part. */
export const gpuOf = (amounts) => amounts.gpu ?? "0";

/** "3 changes", "1 change". */
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export const ordinal = (number) => {
  const last = number % 100 > 10 && number % 100 < 20 ? 0 : number % 10;
  return `${number}${["th", "st", "nd", "rd"][last] ?? "th"}`;
};
