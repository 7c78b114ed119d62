// Starts the editor: state from the page, rendering after each change, and what the window asks.
import { html, render } from "../../vendor/lit/lit-html.js";
import boardLines from "../board-lines.js";
import { refresh } from "./actions.js";
import { createApp } from "./app.js";
import { draftBar, generalFindings, head } from "./bar.js";
import { board } from "./board.js";
import { dialog, showDialog } from "./dialogs.js";
import { bindConnecting, bindOrders } from "./drag-and-drop.js";
import { markCurrent, matrix } from "./matrix.js";
import { orderPanel } from "./order.js";
import { useSprite } from "./parts.js";

const REFRESH_MS = 15000;
// More cards than an eye can follow begin as a matrix.
const MOST_PROFILES = 16;
const MOST_POOLS = 8;

export function start(root) {
  const given = JSON.parse(document.getElementById("editor-start").textContent);
  useSprite(root.dataset.icons);
  root.replaceChildren();
  const app = createApp(given, root.dataset.csrf, (current) => draw(current, root));
  app.view = firstView(app);
  draw(app, root);
  bindConnecting(app, root);
  addEventListener("beforeunload", (event) => {
    if (app.isDirty && !app.isLeaving) event.preventDefault();
  });
  setInterval(() => {
    if (!document.hidden) refresh(app);
  }, REFRESH_MS);
  root.dataset.ready = "";
}

function firstView(app) {
  const wanted = new URLSearchParams(location.search).get("view");
  if (wanted === "matrix" || wanted === "board") return wanted;
  const isLarge = app.doc.profiles.length > MOST_PROFILES || app.doc.pools.length > MOST_POOLS;
  return isLarge ? "matrix" : "board";
}

function draw(app, root) {
  render(page(app), root);
  showDialog(root);
  bindOrders(app, root);
  const lines = root.querySelector("#board");
  if (lines && !lines.hasLines) {
    lines.hasLines = true;
    boardLines(lines);
  } else dispatchEvent(new CustomEvent("rpm:card"));
  if (app.view === "matrix") markCurrent(app, root);
  for (const step of app.steps.splice(0)) step(root);
}

const page = (app) => html`
  ${head(app)} ${draftBar(app)} ${generalFindings(app)}
  <div class="ed-panes">${app.view === "matrix" ? matrix(app) : board(app)} ${orderPanel(app)}</div>
  ${dialog(app)}`;
