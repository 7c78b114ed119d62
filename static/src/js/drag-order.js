// Rows that can be dragged to another place; each has buttons that do the same. The form named by
// `data-form` gets `drag` as `before ID OTHER` or `after ID OTHER`. While a row is held, the card
// around it is not replaced (live.js).
export default async function dragOrder(list) {
  const form = document.getElementById(list.dataset.form);
  if (!form) return;
  await import("../vendor/sortable.js");
  let before = "";
  const order = () => [...list.children].map(id).join(" ");
  window.Sortable.create(list, {
    handle: ".grip",
    draggable: "[data-task]",
    animation: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 160,
    onStart() {
      before = order();
      list.dataset.held = "";
    },
    onEnd({ item }) {
      if (order() !== before) {
        form.elements.drag.value = place(item);
        form.requestSubmit();
        form.elements.drag.value = "";
      }
      delete list.dataset.held;
      // A card that came meanwhile puts the row back: only now, when its neighbours are read.
      dispatchEvent(new Event("rpm:release"));
    },
  });
}

const id = (row) => row?.dataset?.task;

/** The row that it was dropped next to: an equal one where there is one, because the server places
 * a task only next to its equals. */
function place(item) {
  const [next, previous] = [item.nextElementSibling, item.previousElementSibling];
  const isEqual = (row) => row?.dataset.equals === item.dataset.equals;
  return id(next) && (isEqual(next) || !isEqual(previous))
    ? `before ${id(item)} ${id(next)}`
    : `after ${id(item)} ${id(previous)}`;
}
