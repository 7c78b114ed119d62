// A form whose buttons are outside it, in a card that is replaced: htmx sees only what the form
// holds, and that only when it sends, which is later while an earlier move is under way. So each
// move, pressed or dragged, waits here; the form says `hx-sync="this:queue all"`.
export default function orderForm(form) {
  const moves = [];
  form.addEventListener(
    "submit",
    (event) => {
      moves.push(event.submitter?.value || form.elements.drag.value);
    },
    { capture: true },
  );
  form.addEventListener("htmx:configRequest", (event) => {
    event.detail.parameters.drag = moves.shift() ?? "";
  });
}
