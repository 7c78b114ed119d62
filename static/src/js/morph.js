// Morphs a part of the page into its next state. An element that can be pressed is matched by what
// it does, never by its position: listeners stay on their element, so a button that became another
// button would still do what the first one did.
const PRESSABLE = "a, button, form, select, [data-behaviour]:not(time)";
const ACTION = [
  "data-behaviour",
  "data-dialog",
  "data-copy",
  "form",
  "popovertarget",
  "name",
  "value",
  "href",
  "action",
  "hx-get",
  "hx-post",
];
const PREFIX = "action:";

const keepOpen = {
  // What the reader opened, typed or selected stays as it is.
  beforeAttributeUpdated: (name, node) =>
    !(name === "open" && ["DETAILS", "DIALOG"].includes(node.tagName)) &&
    !(name === "checked" && "keepChecked" in node.dataset),
};

/** Morph `old` into `fresh`, elements in one fragment; `style` is that of Idiomorph. */
export function morph(old, fresh, style) {
  const root = old.parentElement;
  const focused = document.activeElement;
  const headings = old.contains(focused) ? headingsAbove(focused) : [];
  setKeys(old);
  setKeys(fresh);
  const changed = window.Idiomorph.morph(old, fresh.children, {
    morphStyle: style,
    ignoreActiveValue: true,
    callbacks: keepOpen,
  });
  // An element that moves in the document loses the focus in some browsers.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus();
  // What was pressed is gone with what it did: the keyboard goes on near to where it stood.
  else if (headings.length && !focused.isConnected) focusHeading(headings);
  for (const element of root.querySelectorAll(`[id^="${PREFIX}"]`)) element.removeAttribute("id");
  return changed;
}

/** The headings of what is around an element, the nearest first. */
function headingsAbove(element) {
  const found = [];
  for (let at = element.parentElement; at; at = at.parentElement) {
    const heading = at.querySelector("h1, h2, h3");
    if (heading) found.push(heading);
  }
  return found;
}

function focusHeading(headings) {
  const heading = headings.find((one) => one.isConnected);
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Idiomorph matches by id: each pressable element without one gets one while it works. */
function setKeys(part) {
  const times = new Map();
  for (const element of part.querySelectorAll(PRESSABLE)) {
    if (element.hasAttribute("id")) continue;
    const words = ACTION.map((name) => element.getAttribute(name) ?? "");
    const key = encodeURIComponent([element.tagName, ...words].join(" "));
    times.set(key, (times.get(key) ?? 0) + 1);
    element.id = `${PREFIX}${key}:${times.get(key)}`;
  }
}

/** `hx-swap="morph:..."` does the same. */
export function startMorphing() {
  window.htmx.defineExtension("morph", {
    isInlineSwap: (style) => style.startsWith("morph"),
    handleSwap: (style, target, fragment) =>
      style.startsWith("morph") &&
      morph(target, fragment, style === "morph:innerHTML" ? "innerHTML" : "outerHTML"),
  });
}
