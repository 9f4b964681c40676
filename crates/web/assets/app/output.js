// What an iteration printed, changed and checked, with search. A report has the changes and the checks only.

import { el, put, setText } from "./dom.js";
import { printable } from "./text.js";
import { bytes, plural, span } from "./time.js";
import * as api from "./api.js";

/** How many bytes are loaded at once. */
const PIECE = 128 * 1024;
/** The most bytes that are shown at once. */
const MAX_SHOWN = 2 * 1024 * 1024;
/** The longest line in characters, and the most lines. */
const MAX_LINE = 4000;
const MAX_LINES = 20_000;
/** The delay between two requests for a growing file. */
const FRESH = 1500;

const TABS = { output: "Output", changes: "Changes", checks: "Checks", stderr: "stderr", prompt: "Prompt" };
/** The tabs whose content is not in the record. */
const ON_DISK = ["output", "stderr", "prompt"];

export class Output {
  /** `diffs` are the changes of a report, by node and iteration; null on the served page. */
  constructor(model, run, { diffs = null } = {}) {
    Object.assign(this, { model, run, diffs, tab: diffs ? "changes" : "output", picked: null, latest: true, raw: false, want: PIECE, size: 0, start: 0, lines: [], query: "", busy: false, last: 0 });
    this.which = el("select", { class: "field", "aria-label": "Iteration", on: { change: () => this.pickIndex(Number(this.which.value)) } });
    const tabs = Object.keys(TABS).filter((name) => !diffs || !ON_DISK.includes(name));
    this.tabs = el("div", { class: "tabs", role: "group", "aria-label": "View" },
      tabs.map((name) => el("button", { type: "button", class: "tab", data: { tab: name }, "aria-pressed": String(name === this.tab), on: { click: () => this.pickTab(name) } }, TABS[name])));
    this.search = el("input", { type: "search", class: "field", placeholder: "Search", "aria-label": "Search output", on: { input: () => { this.query = this.search.value.toLowerCase(); this.draw(false); } } });
    this.rawButton = el("button", { type: "button", class: "button small toggle", "aria-pressed": "false", hidden: true, title: "As the agent printed it", on: { click: () => this.setRaw(!this.raw) } }, "Raw");
    this.state = el("span", { class: "quiet count" });
    this.more = el("button", { type: "button", class: "button small more", hidden: true, on: { click: () => this.earlier() } }, "Show earlier output");
    this.text = el("div", { class: "output-text", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output" });
    this.view = el("section", { class: "panel output" },
      el("div", { class: "panel-bar" }, el("h2", {}, "Iteration"), this.which, this.tabs, this.rawButton, this.search, this.state), this.more, this.text);
  }

  /** Called for new events: shows a new iteration, or more output of the current one. */
  update() {
    const all = this.model.iterations;
    if (all.length !== this.listed) {
      this.listed = all.length;
      // The select lists only the latest thousand iterations.
      const from = Math.max(0, all.length - 1000);
      put(this.which, all.slice(from).map((i, k) => el("option", { value: String(from + k) }, this.model.order.length > 1 ? `${i.node} \u00b7 ${i.iteration}` : `iteration ${i.iteration}`)).reverse());
      if (this.latest && all.length) this.pick(this.newest());
      else if (this.picked) this.which.value = String(all.indexOf(this.picked));
    }
    if (this.picked?.end === null) this.unfinished = true;
    if (this.unfinished) this.growSoon();
  }

  /** Returns the iteration to show first: the latest. In a report, the latest that called the agent. */
  newest() {
    const all = this.model.iterations;
    return (this.diffs ? all.findLast((i) => i.session) : null) ?? all.at(-1);
  }

  /** Loads more output at a limited rate, and once more after the end of the iteration. */
  growSoon() {
    if (this.timer) return;
    this.timer = setTimeout(async () => {
      this.timer = null;
      if (!this.view.isConnected) return;
      if (this.busy) return this.growSoon();
      const over = this.picked.end !== null;
      await this.load({ grow: true });
      if (over) this.unfinished = false;
    }, Math.max(100, FRESH - (Date.now() - this.last)));
  }

  pickIndex(index) {
    this.latest = index === this.model.iterations.length - 1;
    this.pick(this.model.iterations[index]);
  }

  pick(iteration) {
    if (!iteration || this.picked === iteration) return;
    this.picked = iteration;
    this.latest = iteration === this.model.iterations.at(-1);
    this.which.value = String(this.model.iterations.indexOf(iteration));
    this.unfinished = iteration.end === null;
    this.want = PIECE;
    this.load({});
  }

  pickTab(name) {
    this.tab = name;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", String(tab.dataset.tab === name));
    this.want = PIECE;
    this.load({});
  }

  setRaw(on) {
    this.raw = on;
    this.rawButton.setAttribute("aria-pressed", String(on));
    this.load({});
  }

  async load({ grow }) {
    if (!this.picked || (grow && this.busy)) return;
    this.busy = true;
    this.last = Date.now();
    const [asked, tab] = [this.picked, this.tab];
    const current = () => asked === this.picked && tab === this.tab;
    try {
      const found = await this.fetch(asked, tab, grow);
      if (!current() || found === null) return;
      if (typeof found === "string") return this.clear(found);
      Object.assign(this, { start: 0, size: 0 }, found);
      this.rawButton.hidden = tab !== "output";
      this.draw(tab === "output");
    } catch (error) {
      if (!current() || grow) return;
      this.clear(error.status === 404 ? "Nothing was kept." : `Cannot read it: ${error.message}`);
    } finally {
      this.busy = false;
    }
  }

  /** Returns the lines of a tab, a reason why there are none, or null if nothing has changed. */
  async fetch(asked, tab, grow) {
    if (tab === "checks") return checksOf(this.model, asked);
    if (tab === "changes") return grow && asked.end === null ? null : this.changesOf(asked);
    const stream = tab === "output" ? "stdout" : tab;
    if (!asked.session && asked.end !== null) return "The agent was not called.";
    const files = await api.outputs(this.run, asked.node, asked.iteration);
    const size = files.find((file) => file.name === stream || file.name === `${stream}.md`)?.bytes ?? 0;
    if (size === 0) return asked.end === null ? `No ${tab} yet.` : `No ${tab}.`;
    if (grow && size === this.size) return null;
    if (tab === "output" && !this.raw) {
      const made = await api.readable(this.run, asked.node, asked.iteration, this.want);
      return { start: made.from, size: made.size, lines: made.lines.map((line) => [line.tone, printable(line.text)]) };
    }
    const piece = await api.output(this.run, asked.node, asked.iteration, stream, { last: this.want });
    const lines = printable(new TextDecoder().decode(piece.body)).split("\n");
    if (lines.at(-1) === "") lines.pop();
    return { start: piece.start, size: piece.size, lines: (piece.start > 0 ? lines.slice(1) : lines).map((line) => ["plain", line]) };
  }

  async changesOf(asked) {
    if (asked.end === null) return "The changes are known when the iteration has ended.";
    const text = this.diffs ? this.diffs[`${asked.node}/${asked.iteration}`] : await api.diff(this.run, asked.node, asked.iteration);
    if (text === undefined || text === null) return "There is no snapshot of this iteration in this file.";
    if (text === "") return "No files were changed.";
    return { lines: printable(text.trimEnd()).split("\n").map((line) => [diffTone(line), line]) };
  }

  clear(why) {
    Object.assign(this, { lines: [], start: 0, size: 0 });
    put(this.text, el("p", { class: "quiet empty" }, why));
    setText(this.state, "");
    this.more.hidden = true;
    this.rawButton.hidden = this.tab !== "output" || !this.raw;
  }

  async earlier() {
    this.want = Math.min(this.want * 4, MAX_SHOWN);
    const height = this.text.scrollHeight;
    await this.load({});
    this.text.scrollTop = this.text.scrollHeight - height;
  }

  draw(toEnd) {
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 24;
    const fitting = this.query ? this.lines.filter(([, line]) => line.toLowerCase().includes(this.query)) : this.lines;
    const shown = toEnd ? fitting.slice(-MAX_LINES) : fitting.slice(0, MAX_LINES);
    put(this.text, shown.map(([kind, line]) => this.line(kind, line)));
    if (!shown.length) put(this.text, el("p", { class: "quiet empty" }, this.query ? "No matches." : "Nothing yet."));
    this.more.hidden = this.start === 0 || this.want >= MAX_SHOWN;
    const part = this.start > 0 ? `the last ${bytes(this.size - this.start)} of ${bytes(this.size)}` : this.size > 0 ? bytes(this.size) : plural(this.lines.length, "line");
    setText(this.state, this.query ? plural(fitting.length, "line") : part);
    if (toEnd && (atEnd || !this.query)) this.text.scrollTop = this.text.scrollHeight;
  }

  line(kind, line) {
    const text = line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}\u2026` : line;
    if (!this.query) return el("div", { class: `line ${kind}` }, text === "" ? "\u00a0" : text);
    const parts = [];
    const lower = text.toLowerCase();
    let from = 0;
    for (let at = lower.indexOf(this.query); at >= 0 && parts.length < 200; at = lower.indexOf(this.query, from)) {
      parts.push(text.slice(from, at), el("mark", {}, text.slice(at, at + this.query.length)));
      from = at + this.query.length;
    }
    return el("div", { class: `line ${kind}` }, ...parts, text.slice(from));
  }
}

function diffTone(line) {
  if (/^(diff --git|index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) return "head";
  if (line.startsWith("@@")) return "hunk";
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "plain";
}

/** The checks of an iteration: a line for each, and the output of those that failed. */
function checksOf(model, asked) {
  const check = model.checks.findLast((c) => c.node === asked.node && c.iteration === asked.iteration);
  if (!check) return asked.end === null ? "The checks have not run yet." : "No checks ran in this iteration.";
  const lines = (check.event.results ?? []).flatMap((r) => {
    const how = r.timed_out ? "timed out" : r.rc === 0 ? (r.flaky ? "passed, flaky" : "passed") : `exit ${r.rc}`;
    const head = [r.rc === 0 ? "good" : "bad", `${r.rc === 0 ? "\u2713" : "\u2717"} ${printable(r.cmd)}: ${how} in ${span(r.duration_s)}`];
    const tail = r.tail ? printable(r.tail.trimEnd()).split("\n").map((line) => ["result", line]) : [];
    return [head, ...(r.truncated ? [["quiet", "\u2026"]] : []), ...tail];
  });
  return { lines };
}
