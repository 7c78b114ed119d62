// The page begins anew because what it shows is over, or other rights count: but never between
// something that somebody asked for and its answer, which says what came of it and leads on.
const ANSWERED_WITHIN_MS = 10_000;

let asked = 0;
let isDue = false;
let leadsOn = false;
let place = "";

/** `address` is where to begin, empty for this page itself. */
export function beginAnew(address = "") {
  isDue = true;
  place ||= address;
  if (asked || leadsOn) return;
  if (place) location.replace(place);
  else location.reload();
}

export function startLeaving() {
  document.body.addEventListener("htmx:beforeSend", ({ detail }) => {
    if (detail.requestConfig.verb === "get") return;
    asked += 1;
    // Of the request itself: events of htmx are lost where their element is replaced meanwhile.
    detail.xhr.addEventListener("loadend", () => answered(detail.xhr), { once: true });
  });
  // A form that htmx does not send: its answer is the next page, or a file, and this one stays.
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method === "post") leave();
  });
}

function answered(xhr) {
  asked -= 1;
  if (xhr.getResponseHeader("HX-Redirect") ?? xhr.getResponseHeader("HX-Refresh")) leave();
  else if (isDue) beginAnew();
}

function leave() {
  leadsOn = true;
  setTimeout(() => {
    leadsOn = false;
    if (isDue) beginAnew();
  }, ANSWERED_WITHIN_MS);
}
