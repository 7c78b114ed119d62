// A message that can be sent away. One with `data-leaves` leaves by itself, not while the pointer or
// the focus is on it; its place stays empty, so that nothing moves under the pointer.
const SHOWN_MS = 8000;

export default function dismiss(element) {
  element.querySelector("[data-dismiss]")?.addEventListener("click", () => element.remove());
  if (element.dataset.leaves !== undefined) leaveLater(element);
}

function leaveLater(element) {
  setTimeout(() => {
    if (element.matches(":hover, :focus-within")) leaveLater(element);
    else element.classList.add("has-left");
  }, SHOWN_MS);
}
