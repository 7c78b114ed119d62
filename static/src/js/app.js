// Binds behaviours to elements with `data-behaviour`, also to those that arrive later.
import boardLines from "./board-lines.js";
import copyText from "./copy-text.js";
import dismiss from "./dismiss.js";
import followEnd from "./follow-end.js";
import localTime from "./local-time.js";
import openDialog from "./open-dialog.js";
import submitOnChange from "./submit-on-change.js";
import themeChoice from "./theme-choice.js";
import themeToggle from "./theme-toggle.js";
import { startLive } from "./live.js";

const behaviours = {
  "board-lines": boardLines,
  "copy-text": copyText,
  dismiss,
  "follow-end": followEnd,
  "local-time": localTime,
  "open-dialog": openDialog,
  "submit-on-change": submitOnChange,
  "theme-choice": themeChoice,
  "theme-toggle": themeToggle,
};
const bound = new WeakSet();

function bind(root) {
  const found = root.matches?.("[data-behaviour]") ? [root] : [];
  for (const element of [...found, ...root.querySelectorAll("[data-behaviour]")]) {
    if (bound.has(element)) continue;
    bound.add(element);
    for (const name of element.dataset.behaviour.split(" ")) behaviours[name]?.(element);
  }
}

new MutationObserver((records) => {
  for (const record of records) {
    for (const node of record.addedNodes) if (node.nodeType === Node.ELEMENT_NODE) bind(node);
  }
}).observe(document.body, { childList: true, subtree: true });
bind(document.body);
startLive();
