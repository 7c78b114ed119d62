// The page reloads because what it shows is over, or permissions changed: but never between a
// request of the user and its answer, which shows the result and leads on.
const ANSWERED_WITHIN_MS = 10_000;

let pending = 0;
let isDue = false;
let leadsOn = false;
let place = "";

/** `address` is where to begin, empty for this page itself. */
export function reloadPage(address = "") {
  isDue = true;
  place ||= address;
  if (pending || leadsOn) return;
  if (place) location.replace(place);
  else location.reload();
}

export function startPageReload() {
  document.body.addEventListener("htmx:beforeSend", ({ detail }) => {
    if (detail.requestConfig.verb === "get") return;
    pending += 1;
    // Of the request itself: events of htmx are lost where their element is replaced meanwhile.
    detail.xhr.addEventListener("loadend", () => onAnswer(detail.xhr), { once: true });
  });
  // A form that htmx does not send: its answer is the next page, or a file, and this one stays.
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method === "post") leave();
  });
}

function onAnswer(xhr) {
  pending -= 1;
  if (xhr.getResponseHeader("HX-Redirect") ?? xhr.getResponseHeader("HX-Refresh")) leave();
  else if (isDue) reloadPage();
}

function leave() {
  leadsOn = true;
  setTimeout(() => {
    leadsOn = false;
    if (isDue) reloadPage();
  }, ANSWERED_WITHIN_MS);
}
