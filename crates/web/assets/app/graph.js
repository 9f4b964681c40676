// The nodes of a run in layers: dependencies are to the left of a node.

import { el, svg } from "./dom.js";
import { clip } from "./text.js";
import { ENDINGS } from "./words.js";
import { plural } from "./time.js";

const [WIDE, TALL, GAP_X, GAP_Y] = [168, 46, 52, 14];
/** The most nodes that are drawn. */
export const MAX_DRAWN = 300;
/** How many of the latest iterations of a node are shown as ticks. */
const MAX_TICKS = 48;

/** Groups nodes by layer: one more than the deepest dependency. Terminates even on a cycle, which cannot occur. */
function layers(nodes) {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const depth = new Map();
  const of = (node, seen) => {
    if (depth.has(node.name)) return depth.get(node.name);
    if (seen.has(node.name)) return 0;
    seen.add(node.name);
    const below = node.depends_on.map((name) => byName.get(name)).filter(Boolean).map((other) => of(other, seen) + 1);
    const d = Math.max(0, ...below);
    depth.set(node.name, d);
    return d;
  };
  const rows = [];
  for (const node of nodes) (rows[of(node, new Set())] ??= []).push(node);
  return Array.from(rows, (row) => row ?? []);
}

/** Returns the state of a node as a CSS class. */
export function stateOf(node) {
  if (node.state !== "running") return node.state;
  return { working: "working", checking: "working", waiting: "waiting", asking: "waiting" }[node.doing] ?? "running";
}

function stateLabel(node) {
  const word = stateOf(node);
  if (node.state === "done") return `${node.flake ? "flaky" : "done"}, ${plural(node.endings.length, "iteration")}`;
  if (node.doing === "asking") return `needs human input, iteration ${node.iteration}`;
  if (word === "working") return `${node.doing}, iteration ${node.iteration}`;
  if (word === "waiting") return `waiting (${node.wait?.why ?? "?"})`;
  return node.reason ? `${node.state}: ${node.reason}` : node.state;
}

export function drawGraph(model, { chosen, choose }) {
  const nodes = model.order;
  if (nodes.length > MAX_DRAWN) return el("p", { class: "quiet" }, `${plural(nodes.length, "node")}: too many to draw. Use the search in the log instead.`);
  const columns = layers(nodes);
  const at = new Map();
  const tallest = Math.max(...columns.map((column) => column.length));
  columns.forEach((column, i) => column.forEach((node, j) => {
    const top = ((tallest - column.length) * (TALL + GAP_Y)) / 2;
    at.set(node.name, { x: 2 + i * (WIDE + GAP_X), y: 2 + top + j * (TALL + GAP_Y) });
  }));
  const [width, height] = [columns.length * (WIDE + GAP_X) - GAP_X + 4, tallest * (TALL + GAP_Y) - GAP_Y + 4];
  const edges = nodes.flatMap((node) => node.depends_on.filter((name) => at.has(name)).map((name) => edge(at.get(name), at.get(node.name), model.nodes.get(name), node)));
  const boxes = nodes.map((node) => box(node, at.get(node.name), chosen === node.ix, choose));
  return el("div", { class: "graph" }, svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Nodes" }, edges, boxes));
}

function edge(from, to, source, target) {
  const [x0, y0, x1, y1] = [from.x + WIDE, from.y + TALL / 2, to.x, to.y + TALL / 2];
  const bend = Math.max(20, (x1 - x0) / 2);
  const state = source?.state === "done" ? "passed" : target.state === "blocked" ? "blocked" : "open";
  return svg("path", { class: `edge ${state}`, d: `M${x0} ${y0} C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1 - 1} ${y1}` });
}

function box(node, { x, y }, isChosen, choose) {
  const act = () => choose(isChosen ? null : node.ix);
  const key = (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); act(); } };
  return svg("g", {
    class: `node ${stateOf(node)}${isChosen ? " chosen" : ""}${node.flake ? " flake" : ""}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button",
    "aria-pressed": String(isChosen), "aria-label": `${node.name}: ${stateLabel(node)}`, on: { click: act, keydown: key },
  },
  svg("title", {}, `${node.name}: ${stateLabel(node)}`),
  svg("rect", { class: "node-box", width: WIDE, height: TALL, rx: 6 }),
  svg("circle", { class: "node-lamp", cx: 15, cy: 16, r: 4.5 }),
  svg("text", { class: "node-name", x: 28, y: 20 }, clip(node.name, 20)),
  svg("text", { class: "node-state", x: 28, y: 36 }, clip(stateLabel(node), 24)));
}

/** Creates a tick for each of the latest iterations, colored by its checks, or else by how it ended. */
export function ticks(node, pick) {
  const last = node.endings.slice(-MAX_TICKS);
  const left = node.endings.length - last.length;
  return el("div", { class: "ticks" }, left > 0 ? el("span", { class: "quiet" }, `\u2026${left}`) : null,
    last.map((i) => {
      const [ending, how] = i.stop ? ["bad", "stopped by the watchdog"] : ENDINGS[i.ending] ?? ["dim", "?"];
      const [tone, checked] = i.checks ? (i.checks.converged ? ["good", ", checks passed"] : ["bad", ", checks failed"]) : [ending, ""];
      const word = `${how}${checked}`;
      const label = `iteration ${i.iteration}: ${word}`;
      return el("button", { type: "button", class: `tick ${tone}`, title: label, "aria-label": label, on: { click: () => pick(i) } });
    }),
    node.open ? el("span", { class: "tick open", title: `iteration ${node.open.iteration}: in progress` }) : null);
}
