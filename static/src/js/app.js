// Binds behaviours to elements with `data-behaviour`, also to those that arrive later.
import boardLines from "./board-lines.js";
import busyForm from "./busy-form.js";
import chosenHint from "./chosen-hint.js";
import commandWords from "./command-words.js";
import copyText from "./copy-text.js";
import dismiss from "./dismiss.js";
import dragOrder from "./drag-order.js";
import { startFailedRequests } from "./failed-requests.js";
import fetchedDialog from "./fetched-dialog.js";
import followEnd from "./follow-end.js";
import growingBar from "./growing-bar.js";
import { startPageReload } from "./page-reload.js";
import loadDialog from "./load-dialog.js";
import localTime from "./local-time.js";
import openDialog from "./open-dialog.js";
import orderForm from "./order-form.js";
import resourceEditor from "./resource-editor.js";
import searchDialog from "./search-dialog.js";
import searchResults from "./search-results.js";
import selectRows from "./select-rows.js";
import staleParts from "./stale-parts.js";
import submitOnChange from "./submit-on-change.js";
import suggestedName from "./suggested-name.js";
import tapeDetail from "./tape-detail.js";
import themeChoice from "./theme-choice.js";
import themeToggle from "./theme-toggle.js";
import unsavedForm from "./unsaved-form.js";
import vaultText from "./vault-text.js";
import { startLive } from "./live.js";
import { startMorphing } from "./morph.js";

const behaviours = {
  "board-lines": boardLines,
  "busy-form": busyForm,
  "chosen-hint": chosenHint,
  "command-words": commandWords,
  "copy-text": copyText,
  dismiss,
  "drag-order": dragOrder,
  "fetched-dialog": fetchedDialog,
  "follow-end": followEnd,
  "growing-bar": growingBar,
  "load-dialog": loadDialog,
  "local-time": localTime,
  "open-dialog": openDialog,
  "order-form": orderForm,
  "resource-editor": resourceEditor,
  "search-dialog": searchDialog,
  "search-results": searchResults,
  "select-rows": selectRows,
  "stale-parts": staleParts,
  "submit-on-change": submitOnChange,
  "suggested-name": suggestedName,
  "tape-detail": tapeDetail,
  "theme-choice": themeChoice,
  "theme-toggle": themeToggle,
  "unsaved-form": unsavedForm,
  "vault-text": vaultText,
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
    if (record.type === "attributes") bind(record.target);
    for (const node of record.addedNodes) if (node.nodeType === Node.ELEMENT_NODE) bind(node);
  }
}).observe(document.body, {
  childList: true,
  subtree: true,
  // An element that had none gets one when the card around it changes.
  attributes: true,
  attributeFilter: ["data-behaviour"],
});
bind(document.body);
startMorphing();
startFailedRequests();
startPageReload();
startLive();
