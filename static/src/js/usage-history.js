// Draws `data-source` as a plot of the hours that are chosen, in the reader's zone, and draws it
// again when a card of the page has changed, at most every few seconds, and once a minute.
import { timeZone } from "./local-time.js";

const LEAST_MS = 5_000;
const EVERY_MS = 60_000;
const HEIGHT = 160;
const DAY_S = 86_400;
let library = null;

export default function usageHistory(panel) {
  const place = panel.querySelector("[data-plot]");
  const summary = panel.querySelector("[data-summary]");
  let plot = null;
  let known = null;
  let timer = 0;
  let hours = "24";

  async function refresh() {
    timer = 0;
    const asked = hours;
    const reply = await fetch(`${panel.dataset.source}?hours=${asked}`).catch(() => null);
    // What was chosen meanwhile has a request of its own.
    if (!reply?.ok || reply.redirected || asked !== hours) return;
    known = await reply.json();
    panel.querySelector("h2").textContent = `Use of the last ${known.span}`;
    summary.textContent = `Mean ${known.mean} GPU, in the busiest ${known.step} ${known.highest} GPU`;
    place.setAttribute("aria-label", `${panel.querySelector("h2").textContent}: ${summary.textContent}`);
    place.removeAttribute("aria-labelledby");
    if (plot) plot.setData([known.at, known.gpu]);
    else draw();
  }

  for (const button of panel.querySelectorAll("[data-hours]")) {
    button.addEventListener("click", () => {
      hours = button.dataset.hours;
      for (const one of panel.querySelectorAll("[data-hours]"))
        one.setAttribute("aria-pressed", String(one === button));
      refresh();
    });
  }

  function draw() {
    plot?.destroy();
    plot = new window.uPlot(options(place.clientWidth), [known.at, known.gpu], place);
  }

  const soon = () => {
    timer ||= setTimeout(refresh, LEAST_MS);
  };
  loaded(panel.dataset.script)
    .then(refresh)
    .then(() => {
      addEventListener("rpm:card", soon);
      addEventListener("rpm:theme", () => known && requestAnimationFrame(draw));
      new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: HEIGHT })).observe(
        place,
      );
      setInterval(refresh, EVERY_MS);
    });
}

function loaded(address) {
  library ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.addEventListener("load", done);
    script.addEventListener("error", failed);
    document.head.append(script);
  });
  return library;
}

function options(width) {
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = {
    stroke: token("--ink-3"),
    font: "11px Geist, sans-serif",
    grid: { stroke: token("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT,
    ...(timeZone && { tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), timeZone) }),
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [
      { ...axis, size: 24, space: 80, values: (_plot, times) => times.map(clock) },
      { ...axis, size: 36 },
    ],
    series: [
      {},
      { stroke: token("--use-line"), width: 1.5, fill: token("--use-soft"), points: { show: false } },
    ],
  };
}

function clock(seconds, _number, times) {
  const at = new Date(seconds * 1000);
  if (times.at(-1) - times[0] >= 2 * DAY_S)
    return at.toLocaleDateString(undefined, { timeZone, day: "numeric", month: "short" });
  return at.toLocaleTimeString(undefined, {
    timeZone,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
}
