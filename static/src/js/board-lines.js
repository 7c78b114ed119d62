// Draws the connectors of the board: profile port to execution tile. The cards say the same in
// words, so this only adds lines and marks what belongs together.
const NS = "http://www.w3.org/2000/svg";
// More lines than an eye can follow: only those of the card in focus are drawn.
const MOST_LINES = 48;
const CHOICES = ["1st choice", "2nd choice", "3rd choice"];

export default function boardLines(board) {
  const svg = board.querySelector(".wires");
  const all = (selector, within = board) => [...within.querySelectorAll(selector)];
  let focus = null;

  const add = (tag, attributes) => {
    const shape = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    svg.append(shape);
  };

  // Everything is read before anything is written: a board of 40 profiles is laid out once.
  function links() {
    const origin = board.getBoundingClientRect();
    const tiles = new Map();
    for (const tile of all("[data-tile]")) {
      const pool = tile.closest("[data-pool]")?.dataset.pool;
      tiles.set(`${pool} ${tile.dataset.tile}`, { tile, at: tile.getBoundingClientRect() });
    }
    const found = all("[data-profile]").flatMap((card) => {
      const box = card.getBoundingClientRect();
      const ends = all("[data-port]", card)
        .map((port) => ({ port, end: tiles.get(`${port.dataset.port} ${card.dataset.profile}`) }))
        .filter(({ end }) => end)
        .map(({ port, end: { tile, at } }) => ({
          port,
          tile,
          x: at.left + at.width / 2 - origin.left,
          y: at.bottom - origin.top,
        }))
        // In the order of their pools, so that the lines of one card never cross each other.
        .sort((first, second) => first.x - second.x);
      return ends.map((end, index) => {
        const x = (box.width * (index + 1)) / (ends.length + 1);
        return {
          port: end.port,
          x,
          profile: card.dataset.profile,
          pool: end.port.dataset.port,
          rank: Number(end.port.textContent),
          isNew: "new" in end.port.dataset,
          tile: end.tile,
          from: [box.left - origin.left + x, box.top - origin.top - 8],
          to: [end.x, end.y],
        };
      });
    });
    for (const { port, x } of found) port.style.left = `${x}px`;
    return found;
  }

  function label(link) {
    const chip = document.createElement("span");
    chip.className = "wirelabel chip k-profile chip-line bg-surface!";
    chip.textContent = CHOICES[link.rank - 1] ?? `${link.rank}th choice`;
    chip.style.left = `${(link.from[0] + link.to[0]) / 2}px`;
    chip.style.top = `${(link.from[1] + link.to[1]) / 2}px`;
    board.append(chip);
  }

  function line(link, isHot) {
    const [[x1, y1], [x2, y2]] = [link.from, link.to];
    const bend = Math.max(56, (y1 - y2) * 0.62);
    const d = `M${x1} ${y1}C${x1} ${y1 - bend} ${x2} ${y2 + bend} ${x2} ${y2 + 4}`;
    const mood = isHot ? "hot" : focus ? "dim" : "";
    if (isHot) add("path", { d, class: "halo" });
    add("path", { d, class: link.isNew ? `${mood} new` : mood });
    add("circle", { cx: x2, cy: y2, r: 3.5, class: mood });
    if (isHot) label(link);
  }

  function draw() {
    svg.replaceChildren();
    for (const chip of all(".wirelabel")) chip.remove();
    const every = links();
    const isHot = (link) => focus !== null && link[focus.kind] === focus.key;
    every.sort((first, second) => Number(isHot(first)) - Number(isHot(second)));
    const drawn = every.length > MOST_LINES ? every.filter(isHot) : every;
    for (const link of drawn) line(link, isHot(link));
    mark(every.filter(isHot));
  }

  function mark(hot) {
    for (const card of all(".card-k")) {
      const isFocus = focus !== null && card.dataset[focus.kind] === focus.key;
      const isLinked = hot.some(
        (link) => link.pool === card.dataset.pool || link.profile === card.dataset.profile,
      );
      card.classList.toggle("is-focus", isFocus);
      card.classList.toggle("is-linked", isLinked && !isFocus);
    }
    for (const tile of all(".tile")) {
      tile.classList.toggle("is-hot", hot.some((link) => link.tile === tile));
    }
  }

  function setFocus(next) {
    if (next?.kind === focus?.kind && next?.key === focus?.key) return;
    focus = next;
    draw();
  }
  const about = (card) =>
    card.dataset.profile
      ? { kind: "profile", key: card.dataset.profile }
      : { kind: "pool", key: card.dataset.pool };
  for (const kind of ["pointerover", "focusin"]) {
    board.addEventListener(kind, (event) => {
      const card = event.target.closest(".card-k");
      if (card) setFocus(about(card));
    });
  }
  board.addEventListener("pointerleave", () => setFocus(null));
  let asked = 0;
  const soon = () => {
    cancelAnimationFrame(asked);
    if (board.isConnected) asked = requestAnimationFrame(draw);
  };
  addEventListener("rpm:card", soon);
  // Rows that scroll by themselves take the ends of the lines with them.
  board.addEventListener("scroll", soon, { capture: true, passive: true });
  new ResizeObserver(soon).observe(board);
  document.fonts.ready.then(soon);
}
