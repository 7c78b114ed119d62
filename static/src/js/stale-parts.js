// What the server worked out for a form holds for what was typed then: with the next change of the
// form it goes.
export default function staleParts(form) {
  form.addEventListener("input", () => {
    for (const part of form.querySelectorAll("[data-stale]")) part.remove();
  });
}
