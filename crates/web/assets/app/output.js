// The output and the prompt of an iteration, with search.

import { el, put, setText } from "./dom.js";
import { printable } from "./text.js";
import { bytes, plural } from "./time.js";
import { readable } from "./readable.js";
import * as api from "./api.js";

/** How many bytes are loaded at once. */
const PIECE = 128 * 1024;
/** The most bytes that are shown at once. */
const MAX_SHOWN = 2 * 1024 * 1024;
/** The longest line in characters, and the most lines of a tool result. */
const MAX_LINE = 4000;
const MAX_RESULT = 6;
/** The delay between two requests for a growing file. */
const FRESH = 1500;

export class Output {
  constructor(model, run) {
    Object.assign(this, { model, run, node: null, stream: "stdout", picked: null, latest: true, raw: false, start: 0, size: 0, body: new Uint8Array(), query: "", busy: false, last: 0 });
    this.which = el("select", { class: "field", "aria-label": "Iteration", on: { change: () => this.pickIndex(Number(this.which.value)) } });
    this.tabs = el("div", { class: "tabs", role: "group", "aria-label": "Stream" },
      ["stdout", "stderr", "prompt"].map((name) => el("button", { type: "button", class: "tab", "aria-pressed": String(name === "stdout"), on: { click: () => this.pickStream(name) } }, name)));
    this.search = el("input", { type: "search", class: "field", placeholder: "Search", "aria-label": "Search output", on: { input: () => { this.query = this.search.value.toLowerCase(); this.draw(); } } });
    this.rawButton = el("button", { type: "button", class: "button small toggle", "aria-pressed": "false", hidden: true, title: "As the agent printed it", on: { click: () => this.setRaw(!this.raw) } }, "Raw");
    this.state = el("span", { class: "quiet count" });
    this.more = el("button", { type: "button", class: "button small more", hidden: true, on: { click: () => this.earlier() } }, "Show earlier output");
    this.text = el("div", { class: "output-text", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output" });
    this.view = el("section", { class: "panel output" },
      el("div", { class: "panel-bar" }, el("h2", {}, "Output"), this.which, this.tabs, this.rawButton, this.search, this.state), this.more, this.text);
  }

  /** Called for new events: shows a new iteration, or more output of the current one. */
  update() {
    const all = this.model.iterations;
    if (all.length !== this.listed) {
      this.listed = all.length;
      // The select lists only the latest thousand iterations.
      const from = Math.max(0, all.length - 1000);
      put(this.which, all.slice(from).map((i, k) => el("option", { value: String(from + k) }, this.model.order.length > 1 ? `${i.node} \u00b7 ${i.iteration}` : `iteration ${i.iteration}`)).reverse());
      if (this.latest && all.length) this.pick(all[all.length - 1]);
      else if (this.picked) this.which.value = String(all.indexOf(this.picked));
    }
    if (this.picked?.end === null) this.unfinished = true;
    if (this.unfinished) this.growSoon();
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
    this.load({});
  }

  pickStream(name) {
    this.stream = name;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === name));
    this.load({});
  }

  setRaw(on) {
    this.raw = on;
    this.rawButton.setAttribute("aria-pressed", String(on));
    this.draw();
  }

  async load({ grow }) {
    if (!this.picked || (grow && this.busy)) return;
    this.busy = true;
    this.last = Date.now();
    const [asked, stream] = [this.picked, this.stream];
    try {
      const length = await this.lengthOf(asked, stream);
      if (asked !== this.picked || stream !== this.stream) return;
      if (!length) return this.nothing(stream, asked);
      if (grow && length <= this.start + this.body.length) return;
      const from = grow && this.body.length ? { from: this.start + this.body.length } : { last: PIECE };
      const piece = await api.output(this.run, asked.node, asked.iteration, stream, from);
      if (asked !== this.picked || stream !== this.stream) return;
      if (from.from !== undefined && piece.start === from.from) this.append(piece);
      else Object.assign(this, { body: piece.body, start: piece.start, size: piece.size });
      this.draw();
    } catch (error) {
      if (asked !== this.picked || grow) return;
      this.clear(error.status === 404 ? "No output was kept." : `Cannot read the output: ${error.message}`);
    } finally {
      this.busy = false;
    }
  }

  /** Returns the length of the output. An iteration without a session has none. */
  async lengthOf(asked, stream) {
    if (!asked.session && asked.end !== null) return 0;
    const files = await api.outputs(this.run, asked.node, asked.iteration);
    return files.find((file) => file.name === stream || file.name === `${stream}.md`)?.bytes ?? 0;
  }

  nothing(stream, asked) {
    const uncalled = !asked.session && asked.end !== null;
    this.clear(uncalled ? "The agent was not called." : asked.end === null ? `No output on ${stream} yet.` : `No output on ${stream}.`);
  }

  clear(why) {
    Object.assign(this, { body: new Uint8Array(), start: 0, size: 0 });
    put(this.text, el("p", { class: "quiet empty" }, why));
    setText(this.state, "");
    this.more.hidden = true;
    this.rawButton.hidden = true;
  }

  append(piece) {
    const grown = new Uint8Array(this.body.length + piece.body.length);
    grown.set(this.body);
    grown.set(piece.body, this.body.length);
    const cut = Math.max(0, grown.length - MAX_SHOWN);
    this.body = grown.subarray(cut);
    this.start += cut;
    this.size = Math.max(piece.size, this.start + this.body.length);
  }

  async earlier() {
    const [asked, stream] = [this.picked, this.stream];
    const want = Math.min(this.body.length + 4 * PIECE, MAX_SHOWN);
    const piece = await api.output(this.run, asked.node, asked.iteration, stream, { last: want });
    if (asked !== this.picked || stream !== this.stream) return;
    Object.assign(this, { body: piece.body, start: piece.start, size: piece.size });
    const height = this.text.scrollHeight;
    this.draw(false);
    this.text.scrollTop = this.text.scrollHeight - height;
  }

  draw(toEnd = true) {
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 24;
    let lines = printable(new TextDecoder().decode(this.body)).split("\n");
    if (lines.at(-1) === "") lines.pop();
    if (this.start > 0) lines = lines.slice(1);
    const rendered = this.render(lines);
    const shown = this.query ? rendered.filter(([, line]) => line.toLowerCase().includes(this.query)) : rendered;
    put(this.text, shown.map(([kind, line]) => this.line(kind, line)));
    if (!shown.length) put(this.text, el("p", { class: "quiet empty" }, this.query ? "No matches." : "No output yet."));
    this.more.hidden = this.start === 0 || this.body.length >= MAX_SHOWN;
    setText(this.state, this.query ? plural(shown.length, "line") : this.start > 0 ? `the last ${bytes(this.body.length)} of ${bytes(this.size)}` : bytes(this.size));
    if (toEnd && (atEnd || !this.query)) this.text.scrollTop = this.text.scrollHeight;
  }

  /** Returns lines as [kind, text]. JSON output of agents is made readable, except in raw mode. */
  render(lines) {
    let known = 0;
    const plain = lines.map((line) => ["plain", line]);
    if (this.stream !== "stdout") { this.rawButton.hidden = true; return plain; }
    const rendered = lines.flatMap((line) => {
      const parts = readable(line);
      if (parts === null) return [["plain", line]];
      known += 1;
      return parts.flatMap(([kind, text]) => cut(kind, text.trimEnd().split("\n")));
    });
    this.rawButton.hidden = known === 0;
    return this.raw ? plain : rendered;
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

function cut(kind, lines) {
  const long = (kind === "result" || kind === "failed") && lines.length > MAX_RESULT;
  const kept = long ? [...lines.slice(0, MAX_RESULT - 1), `\u2026 ${plural(lines.length - MAX_RESULT + 1, "line")} more`] : lines;
  return kept.map((line, i) => [i === 0 ? `${kind} first` : kind, line]);
}
