// A message that can be sent away.
export default function dismiss(element) {
  element.querySelector("[data-dismiss]")?.addEventListener("click", () => element.remove());
}
