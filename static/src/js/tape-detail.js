// Says in one line what the block under the pointer or with the focus is; arrows go from block to
// block, along a row and between rows.
const BLOCK = ".tape-block";

export default function tapeDetail(tape) {
  const line = tape.querySelector("[data-tape-detail]");
  const usual = line.textContent;
  const say = (block) => {
    line.textContent = block?.querySelector("title").textContent ?? usual;
  };
  const show = (event) => say(event.target.closest(BLOCK) ?? tape.querySelector("a.tape-block:focus"));
  tape.addEventListener("pointerover", show);
  tape.addEventListener("focusin", show);
  tape.addEventListener("pointerleave", () => say(tape.querySelector("a.tape-block:focus")));
  tape.addEventListener("keydown", (event) => {
    const block = event.target.closest("a.tape-block");
    const next = block && neighbour(tape, block, event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}

function neighbour(tape, block, key) {
  const row = block.closest(".tape-row");
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const blocks = [...row.querySelectorAll("a.tape-block")];
    return blocks[blocks.indexOf(block) + (key === "ArrowRight" ? 1 : -1)];
  }
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const rows = [...tape.querySelectorAll(".tape-row")].filter((one) => one.querySelector("a.tape-block"));
  const other = rows[rows.indexOf(row) + (key === "ArrowDown" ? 1 : -1)];
  return other && nearest(other, middle(block));
}

function nearest(row, at) {
  const blocks = [...row.querySelectorAll("a.tape-block")];
  const distances = blocks.map((one) => Math.abs(middle(one) - at));
  return blocks[distances.indexOf(Math.min(...distances))];
}

function middle(block) {
  const box = block.getBoundingClientRect();
  return box.left + box.width / 2;
}
