// Tooltips: what the record contains about a point in time.

import { el } from "./dom.js";
import { clock, money, plural, span } from "./time.js";
import { describe, wait, ENDINGS } from "./words.js";
import { oneLine } from "./text.js";

const head = (tone, title, at) => el("header", { class: `tip-head ${tone}` }, el("b", {}, title), el("time", {}, clock(at, true)));
const line = (text) => (text ? el("p", {}, text) : null);

/** A table of the four channels at a verdict, as the watchdog saw them. */
export function summary(list, active) {
  const row = (e) => el("tr", { class: e.channel === active ? "active" : null },
    el("th", { scope: "row" }, e.channel),
    el("td", {}, e.age_seconds === null || e.age_seconds === undefined ? "never" : `${span(e.age_seconds)} ago`),
    el("td", {}, e.counter === undefined ? "" : `\u00d7 ${e.counter}`));
  return el("table", { class: "evidence" }, el("tbody", {}, (list ?? []).map(row)));
}

function ages(model, at) {
  return summary(model.evidenceAt(at).map(({ channel, age }) => ({ channel, age_seconds: age })), null);
}

function ofMark(model, { mark }) {
  const e = mark.event;
  const titles = { hard_stop: "Hard stop", watchdog_continue: "Deferred", trouble: "Trouble", notice: "Notice", told: "Operator message", marker_seen: "Marker", run_resumed: "Resumed", recovery_planned: "Recovery", run_ended: "Run ended", needs_human: "Needs human input", check_tampered: "Checks tampered with" };
  const tone = ["hard_stop", "trouble", "check_tampered"].includes(mark.kind) ? "bad" : "wait";
  return [head(tone, titles[mark.kind] ?? mark.kind, mark.at), line(describe(e)),
    e.evidence_summary ? summary(e.evidence_summary, e.active_channel) : ages(model, mark.at)];
}

function ofSession(model, { session: s, at }) {
  const ending = s.stop ? ["bad", "stopped by the watchdog"] : ENDINGS[s.ending] ?? ["blue", s.end === null ? "working" : "ended"];
  const e = s.event;
  const used = e && [plural(e.messages ?? 0, "message"), plural(e.tools ?? 0, "tool call"), e.tokens !== undefined ? `${e.tokens} tokens` : null,
    e.cost_usd !== undefined ? money(e.cost_usd) : null].filter(Boolean).join(", ");
  return [head(ending[0], `${s.node}, iteration ${s.iteration}`, s.start),
    line(`${ending[1]}, ${span(((s.end ?? Date.now()) - s.start) / 1000)}${e ? `, ended by ${e.ended_by}` : ""}`),
    line(used), s.stop ? line(describe(s.stop)) : null, e?.said ? line(`\u201c${oneLine(e.said, 160)}\u201d`) : null, ages(model, at)];
}

function ofWait({ wait: w }) {
  const planned = w.until ? `, until ${clock(w.until)}` : "";
  const lasted = span((w.end - w.start) / 1000);
  const plan = w.delay ? ` of ${span(w.delay)} planned` : "";
  return [head("wait", `Waiting: ${wait(w.why)}`, w.start),
    line(w.end === null ? `since ${clock(w.start)}${planned}` : `${lasted}${plan}, ended by ${w.by}`)];
}

function ofCheck({ check }) {
  const rows = (check.event.results ?? []).map((r) => el("tr", { class: r.rc === 0 ? "" : "failed" },
    el("th", { scope: "row" }, oneLine(r.cmd, 60)), el("td", {}, r.rc === 0 ? "passed" : `exit ${r.rc}`), el("td", {}, span(r.duration_s))));
  return [head(check.event.converged ? "good" : "bad", `Checks of ${check.node}, iteration ${check.iteration}`, check.end),
    el("table", { class: "evidence" }, el("tbody", {}, rows))];
}

function ofChannel(model, { channel, tool, at }) {
  const t = tool && (tool.end === null || tool.end >= at - 1) ? `${tool.label}: ${tool.end === null ? "in flight" : span((tool.end - tool.start) / 1000)}${tool.ok === false ? ", failed" : ""}` : null;
  return [head("plain", channel, at), line(t), ages(model, at)];
}

/** Returns the content of the tooltip for an item. */
export function about(model, found) {
  if (found.mark) return ofMark(model, found);
  if (found.session) return ofSession(model, found);
  if (found.look) return [head("wait", "Planned look", found.look)];
  if (found.wait) return ofWait(found);
  if (found.check) return ofCheck(found);
  if (found.channel) return ofChannel(model, found);
  return [head("plain", "Last seen", found.at), ages(model, found.at)];
}
