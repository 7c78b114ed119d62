// What htmx asked for and did not get. It is said in a toast, or in the dialog that covers those,
// and every live card is fetched again: a dragged row, say, is where the server never put it.
import { refetch } from "./live.js";

let isLeaving = false;

export function startFailedRequests() {
  addEventListener("pagehide", () => {
    isLeaving = true;
  });
  for (const kind of ["htmx:responseError", "htmx:sendError"]) {
    document.body.addEventListener(kind, onFailure);
  }
  document.body.addEventListener("htmx:beforeSwap", stayOnPath);
}

function onFailure(event) {
  const { elt, requestConfig, xhr } = event.detail;
  // What asks by itself, each minute, asks again.
  if (isLeaving || !requestConfig.triggeringEvent?.isTrusted) return;
  say(elt.closest("dialog[open]") ?? document.querySelector(".toasts"), xhr.status);
  refetch();
}

/** Where an answer comes from another address, as the page to sign in does, it is none to what
 * was asked: the whole page leads there. */
function stayOnPath(event) {
  const { pathInfo, xhr } = event.detail;
  const asked = new URL(pathInfo.finalRequestPath, location.href).pathname;
  if (!xhr.responseURL || new URL(xhr.responseURL).pathname === asked) return;
  event.preventDefault();
  location.reload();
}

function say(place, status) {
  const words = document.getElementById("failed-request");
  const line = words.content.firstElementChild.cloneNode(true);
  line.querySelector("span").textContent =
    words.getAttribute(`data-${status}`) ?? words.dataset.other;
  place.querySelector("[data-failed-request]")?.remove();
  place.prepend(line);
  line.scrollIntoView({ block: "nearest" });
}
