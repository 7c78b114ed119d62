// Moving things with a pointer: rows within their order, and a profile onto a pool.
import { connectTo, move } from "./app.js";
import { linkOf, profileOf } from "./document.js";

const FAR_ENOUGH = 5;
const EDGE = 48;
const STEP = 16;

/** Makes every list with `data-order` sortable; those that are so already stay as they are. */
export function bindOrders(app, root) {
  for (const list of root.querySelectorAll("[data-order]")) {
    if (list.isSortable) continue;
    list.isSortable = true;
    let next = null;
    window.Sortable.create(list, {
      animation: 120,
      draggable: "[data-item]",
      filter: "button:not(.truncate)",
      preventOnFilter: false,
      onStart({ item }) {
        app.isDragging = true;
        next = item.nextSibling;
      },
      onEnd({ item, from, newDraggableIndex }) {
        app.isDragging = false;
        // The renderer must find the list as it left it; the new order is rendered again.
        from.insertBefore(item, next);
        app.set({});
        move(app, from.dataset.order, from.dataset.of, item.dataset.item, newDraggableIndex);
      },
    });
  }
}

/**
 * Lets the head of a profile card be dragged onto a pool. While it is under way nothing is
 * rendered: one thread follows the pointer, and the pool below it is marked.
 */
export function bindConnecting(app, root) {
  let drag = null;

  root.addEventListener("pointerdown", (event) => {
    const head = event.target.closest("[data-drag-profile]");
    // A finger scrolls the page; Connect is next to it.
    if (!head || event.pointerType === "touch" || event.button !== 0 || event.target.closest("button")) return;
    drag = { head, key: head.dataset.dragProfile, x: event.clientX, y: event.clientY, isUnderWay: false };
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    if (!drag.isUnderWay && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < FAR_ENOUGH) return;
    if (!drag.isUnderWay) begin(event);
    drag.at = event;
    drag.frame ??= requestAnimationFrame(follow);
  });
  addEventListener("pointerup", () => {
    if (!drag) return;
    const { key, target, isUnderWay } = drag;
    end();
    if (isUnderWay && target) connectTo(app, key, target.dataset.pool);
  });
  addEventListener("pointercancel", end);
  addEventListener("keydown", (event) => {
    if (drag && event.key === "Escape") end();
  });

  function begin(event) {
    const board = drag.head.closest(".ed-board");
    Object.assign(drag, {
      isUnderWay: true,
      board,
      path: board.querySelector(".ed-thread path"),
      card: drag.head.closest(".card-k"),
      linked: profileOf(app.doc, drag.key),
    });
    app.isDragging = true;
    // On the head alone: on the board it would be inherited, and every card be styled again.
    drag.head.classList.add("is-dragged");
    // Until it is let go no other card hears of the pointer, so no lines are drawn again.
    drag.head.setPointerCapture(event.pointerId);
    getSelection()?.removeAllRanges();
  }

  function follow() {
    if (!drag?.isUnderWay) return;
    drag.frame = undefined;
    const { clientX: x, clientY: y } = drag.at;
    const below = document.elementFromPoint(x, y);
    const pool = below?.closest("[data-pool]") ?? null;
    const [frame, from] = [drag.board.getBoundingClientRect(), drag.card.getBoundingClientRect()];
    mark(pool);
    const [x1, y1] = [from.left + from.width / 2 - frame.left, from.top - frame.top];
    const [x2, y2] = [x - frame.left, y - frame.top];
    const bend = Math.max(40, (y1 - y2) * 0.5);
    drag.path.setAttribute("d", `M${x1} ${y1}C${x1} ${y1 - bend} ${x2} ${y2 + bend} ${x2} ${y2}`);
    scrollAtEdge(x, frame);
  }

  function mark(pool) {
    if (drag.over === pool) return;
    drag.over?.classList.remove("is-target", "is-refused");
    drag.over = pool;
    const isLinked = pool && linkOf(drag.linked, pool.dataset.pool);
    pool?.classList.add(isLinked ? "is-refused" : "is-target");
    drag.target = isLinked ? null : pool;
  }

  function scrollAtEdge(x, frame) {
    const row = drag.board.querySelector(".ed-row");
    const step = x < frame.left + EDGE ? -STEP : x > frame.right - EDGE ? STEP : 0;
    if (!step || !row) return;
    row.scrollBy({ left: step });
    drag.frame ??= requestAnimationFrame(follow);
  }

  function end() {
    if (!drag) return;
    drag.over?.classList.remove("is-target", "is-refused");
    drag.head.classList.remove("is-dragged");
    drag.path?.setAttribute("d", "");
    drag = null;
    app.isDragging = false;
    app.set({});
  }
}
