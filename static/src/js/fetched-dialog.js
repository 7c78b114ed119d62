// A dialog that htmx fills: it opens once what was asked for is there. A form that was refused
// comes back with its sentences, and stays open.
const REFUSED = [400, 409];

export default function fetchedDialog(dialog) {
  dialog.addEventListener("htmx:beforeSwap", (event) => {
    const { target, requestConfig, xhr } = event.detail;
    if (target !== dialog) return;
    if (isLeft(dialog, requestConfig.elt)) {
      event.preventDefault();
      return;
    }
    if (!REFUSED.includes(xhr.status)) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  });
  dialog.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== dialog) return;
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("[autofocus], [aria-invalid=true]")?.focus();
  });
  dialog.addEventListener("click", (event) => {
    if (!event.target.closest("[data-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => dialog.replaceChildren());
}

/** Its form was asked for something, and closed before the answer came. The request itself is not
 * aborted: the server may have saved already, and then its answer leads to what was made. */
function isLeft(dialog, asker) {
  return !asker.isConnected || (dialog.contains(asker) && !dialog.open);
}
