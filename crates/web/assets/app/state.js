// The state of a run as text, for the overview and the header of a run's page.

import { el } from "./dom.js";
import { oneLine } from "./text.js";
import { amount, money, ordinal, plural, span } from "./time.js";
import { outcomeTone, outcomeWord, wait } from "./words.js";

/** Returns the display name of a run: its job in a fleet or else the name of its loop, after the job of its graph if it is a node of a spread one. */
export function nameOf(run) {
  return run.graph ? `${run.graph}/${ownName(run)}` : run.job ?? ownName(run);
}

function ownName(run) {
  const status = run.status;
  if (status?.nodes?.length === 1) return status.nodes[0].name;
  const path = (run.path ?? status?.path ?? "").split("/").filter((part) => part !== "");
  const file = path.at(-1) ?? "";
  const plain = /^(RALPH\.md|graph\.\w+)$/i.test(file) ? path.at(-2) : file;
  return plain || run.run;
}

/** Returns the machine, if it is another one, and the end of the project path. */
export function placeOf(run) {
  const host = run.host ? `${run.host}: ` : "";
  const place = run.project ?? run.status?.work_dir ?? "";
  const room = Math.max(44 - host.length, 12);
  return host + (place.length > room ? `\u2026${place.slice(1 - room)}` : place);
}

/** Returns the most active node. */
export function busiest(status) {
  const rank = { working: 5, checking: 4, preparing: 3, waiting: 2, nothing: 1 };
  const of = (node) => (node?.doing?.needs_human ? 9 : rank[node?.doing?.what] ?? 0);
  return (status?.nodes ?? []).reduce((best, node) => (of(node) > of(best) ? node : best), null);
}

/** Returns the CSS class of the status lamp. */
export function lampOf(run) {
  const state = run.state ?? run.status?.state;
  if (state === "ended") return outcomeTone(run.status?.ended?.outcome);
  return { working: "working", preparing: "working", checking: "working", starting: "working", needs_human: "asks", waiting: "waiting", paused: "paused", asleep: "paused", lost: "bad" }[state] ?? "dim";
}

export function lamp(run) {
  return el("span", { class: `lamp ${lampOf(run)}`, "aria-hidden": "true" });
}

/** Returns the state of a run in one word, and the reason. */
export function stateText(run) {
  const [state, why] = stateAndReason(run);
  return run.status?.stopping ? [state, `${why}; stops after the current iteration`] : [state, why];
}

function stateAndReason(run) {
  const status = run.status;
  const state = run.state ?? status?.state ?? "unknown";
  const node = busiest(status);
  const of = status?.nodes?.length > 1 && node ? `${node.name}, ` : "";
  switch (state) {
    case "working": return ["working", `${of}iteration ${node?.iteration ?? "?"}${node?.doing?.working_s ? `, for ${span(node.doing.working_s)}` : ""}`];
    case "needs_human": return ["needs you", `${of}${oneLine(node?.doing?.needs_human?.what, 160)}`];
    case "checking": return ["checking", `${of}after iteration ${node?.iteration ?? "?"}`];
    case "preparing": return ["preparing", `${of}iteration ${node?.iteration ?? "?"}`];
    case "waiting": return ["waiting", `${of}${waitReason(node)}`];
    case "asleep": return ["asleep", "until woken"];
    case "paused": return ["paused", "until resumed"];
    case "ended": return [outcomeWord(status?.ended?.outcome), oneLine(status?.ended?.reason, 160)];
    case "lost": return run.job ? ["lost", "not running; `dogwatch fleet ls` shows the job"] : ["lost", "the supervisor died; continue with `dogwatch resume`"];
    default: return [run.error ? "unreadable" : state, oneLine(run.error, 160)];
  }
}

function waitReason(node) {
  const why = node?.doing?.why;
  if (why === "idle" && node.spell) return `idle, ${ordinal(node.spell.count)} in a row (${oneLine(node.spell.reason, 60)})`;
  if (why === "error" && node.failures_in_row > 0) return `after ${plural(node.failures_in_row, "failure")} in a row`;
  return wait(why);
}

/** Returns the end of the next wait in milliseconds, and its length. */
export function nextWake(status) {
  const waits = (status?.nodes ?? []).map((node) => node.doing).filter((doing) => doing?.what === "waiting" && doing.until);
  const ends = waits.map((doing) => ({ at: Date.parse(doing.until), long: (doing.delay_s ?? 0) * 1000, why: doing.why }));
  return ends.reduce((best, end) => (best === null || end.at < best.at ? end : best), null);
}

const pill = (tone, n, word) => (n > 0 ? el("span", { class: `pill ${tone}`, title: `${n} ${word}` }, el("b", {}, amount(n)), ` ${word}`) : null);

/** Returns the number of iterations that the badges add up to, including interrupted and unfinished ones. */
export function countedIterations(status) {
  const c = status?.counts;
  return c && c.iterations + (c.interrupted ?? 0) + (status.unfinished ?? 0);
}

/** Badges for the endings of the iterations and the result of the run. */
export function pills(status) {
  const c = status?.counts ?? {};
  const ended = status?.ended;
  return el("span", { class: "pills" },
    ended?.verified ? el("span", { class: "pill good", title: "the checks passed" }, "verified") : null,
    ended?.flake_retries > 0 ? el("span", { class: "pill flake", title: "passed only after a failed attempt" }, plural(ended.flake_retries, "flake")) : null,
    pill("good", (c.completed ?? 0) - (c.idle ?? 0), "completed"), pill("calm", c.idle, "idle"), pill("bad", c.failed, "failed"),
    pill("bad", c.timed_out, "timed out"), pill("dim", c.interrupted, "interrupted"), pill("dim", status?.unfinished, "unfinished"), pill("bad", status?.troubles?.count, "trouble"),
    status?.record_problem ? el("span", { class: "pill bad", title: status.record_problem }, "check record") : null);
}

/** Formats the subscription windows with the age of each report. An unknown figure is shown as unknown. */
export function windowsText(windows) {
  return windows.map((w) => {
    const used = w.used_percent === null ? "unknown" : `${w.used_percent}% used`;
    const limit = w.limit_percent === null ? "" : ` of ${w.limit_percent}%`;
    const age = w.age_s === null ? "" : `, ${span(Math.round(w.age_s))} ago`;
    return `${w.account} ${w.window.replace("_", " ")}: ${used}${limit}${age}`;
  }).join("; ");
}

/** Formats the cost. An unknown cost is shown as unknown, never as zero. */
export function cost(spent) {
  if (!spent) return "";
  const known = spent.cost_usd > 0 || spent.tokens > 0;
  if (!known) return spent.unknown_cost > 0 ? "cost unknown" : "";
  const more = spent.unknown_cost > 0 ? " and more" : "";
  const tokens = spent.tokens > 0 ? `, ${amount(spent.tokens)} tokens` : "";
  return spent.cost_usd > 0 ? `${money(spent.cost_usd)}${more}${tokens}` : `cost unknown${tokens}`;
}
