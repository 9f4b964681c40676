// A virtual list of events: only the visible rows are in the page. Arrow keys select an event.

import { el, put, setText } from "./dom.js";
import { clock, plural } from "./time.js";
import { describe, tone } from "./words.js";
import { summary } from "./evidence.js";

const ROW = 30;
/** How many rows are rendered beyond the visible ones, for smooth scrolling. */
const SPARE = 12;
/** The tallest element that browsers support. Longer lists scale the scroll position. */
const MAX_HEIGHT = 8_000_000;

const QUIET = new Set(["observed", "used"]);
const isQuiet = (e) => QUIET.has(e.event) || (e.event === "fact" && e.fact !== "error");

const KINDS = {
  milestones: "Milestones", all: "Everything", verdicts: "Verdicts and trouble", ends: "Iterations", tools: "Tools and errors",
};
const PASSES = {
  milestones: (e) => !isQuiet(e),
  all: () => true,
  verdicts: (e) => ["hard_stop", "watchdog_continue", "trouble", "notice", "node_attempt", "recovery_planned"].includes(e.event),
  ends: (e) => e.event.startsWith("iteration_") || e.event.startsWith("run_") || e.event === "node_transition",
  tools: (e) => e.event === "fact" && e.fact !== "sampled",
};

export class EventList {
  constructor(model, { fromEnd }) {
    Object.assign(this, { model, fromEnd, rows: [], seen: 0, forgotten: 0, kind: "milestones", query: "", only: null, chosen: -1, stick: fromEnd });
    this.search = el("input", { type: "search", class: "field", placeholder: "Search events", "aria-label": "Search events", on: { input: () => this.filter({ query: this.search.value.toLowerCase() }) } });
    this.choice = el("select", { class: "field", "aria-label": "Kind of events", on: { change: () => this.filter({ kind: this.choice.value }) } },
      Object.entries(KINDS).map(([value, label]) => el("option", { value }, label)));
    this.count = el("span", { class: "quiet count" });
    this.body = el("div", { class: "rows" });
    this.view = el("div", { class: "scroll", tabindex: "0", role: "listbox", "aria-label": "Events", on: { scroll: () => this.scrolled(), keydown: (e) => this.key(e) } }, this.body);
    this.detail = el("div", { class: "detail", hidden: true });
    this.node = el("section", { class: "panel events" },
      el("div", { class: "panel-bar" }, el("h2", {}, "Log"), this.choice, this.search, this.count), this.view, this.detail);
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  filter(change) {
    Object.assign(this, change);
    const kept = this.chosenEvent();
    this.rows = [];
    this.seen = 0;
    this.chosen = -1;
    this.gather();
    if (kept) this.chosen = this.rows.indexOf(kept);
    this.stick = this.fromEnd;
    this.draw(true);
  }

  chosenEvent() { return this.rows[this.chosen] ?? null; }

  passes(e) {
    if (!PASSES[this.kind](e)) return false;
    if (this.only !== null && e.node !== undefined && this.model.nodes.get(e.node)?.ix !== this.only) return false;
    return this.query === "" || this.textOf(e).includes(this.query);
  }

  /** Returns the searchable text: the displayed line and, except for progress, all fields. */
  textOf(e) {
    const more = e.event === "observed" ? "" : JSON.stringify(e);
    return `${e.event} ${e.node ?? ""} ${describe(e)} ${more}`.toLowerCase();
  }

  gather() {
    const events = this.model.events;
    for (; this.seen < events.length; this.seen++) if (this.passes(events[this.seen])) this.rows.push(events[this.seen]);
  }

  update() {
    if (this.model.forgotten !== this.forgotten) {
      this.forgotten = this.model.forgotten;
      return this.filter({});
    }
    const before = this.rows.length;
    this.gather();
    if (this.rows.length !== before) this.draw(true);
  }

  get height() { return Math.min(this.rows.length * ROW, MAX_HEIGHT); }
  get scale() { return this.rows.length * ROW > MAX_HEIGHT ? (this.rows.length * ROW) / MAX_HEIGHT : 1; }

  scrolled() {
    this.stick = this.view.scrollTop + this.view.clientHeight >= this.height - ROW;
    this.draw();
  }

  draw(grown = false) {
    this.body.style.height = `${Math.max(this.height, 1)}px`;
    if (grown && this.stick) this.view.scrollTop = this.height;
    const first = Math.max(0, Math.floor((this.view.scrollTop * this.scale) / ROW) - SPARE);
    const many = Math.ceil(this.view.clientHeight / ROW) + 2 * SPARE;
    const shift = this.view.scrollTop - (this.view.scrollTop * this.scale - first * ROW);
    const rows = this.rows.slice(first, first + many).map((e, i) => this.row(e, first + i));
    put(this.body, el("div", { class: "window" }, rows));
    this.body.firstChild.style.transform = `translateY(${shift}px)`;
    const all = this.model.events.length;
    setText(this.count, this.rows.length === all ? plural(all, "event") : `${this.rows.length} of ${all}`);
    if (!this.rows.length) put(this.body, el("p", { class: "quiet empty" }, this.query ? "No matches." : "No events of this kind yet."));
  }

  row(e, index) {
    return el("div", {
      class: `row ${tone(e)}${index === this.chosen ? " chosen" : ""}`, role: "option", id: `event-${index}`, "aria-selected": String(index === this.chosen),
      on: { click: () => this.choose(index) },
    }, el("time", {}, clock(e.ms)), el("span", { class: "name" }, e.event.replaceAll("_", " ")), el("span", { class: "words" }, this.line(e)));
  }

  /** Returns the line of an event. In a graph it starts with the node. */
  line(e) {
    return e.node !== undefined && this.model.order.length > 1 ? `${e.node}: ${describe(e)}` : describe(e);
  }

  key(e) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / ROW) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[e.key];
    if (by === undefined || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    const from = this.chosen < 0 ? (by > 0 ? -1 : this.rows.length) : this.chosen;
    this.choose(Math.max(0, Math.min(this.rows.length - 1, from + by)));
  }

  choose(index) {
    if (!this.rows[index]) return;
    this.chosen = index;
    const top = (index * ROW) / this.scale;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    else if (top + ROW > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = top + ROW - this.view.clientHeight;
    this.view.setAttribute("aria-activedescendant", `event-${index}`);
    this.draw();
    this.show(this.rows[index]);
  }

  /** Selects an event, and clears the filter if it hides the event. */
  reveal(event) {
    if (!this.passes(event)) {
      this.choice.value = "all";
      this.search.value = "";
      this.filter({ kind: "all", query: "", only: null });
    }
    this.stick = false;
    this.choose(this.rows.indexOf(event));
  }

  /** Shows the whole event as recorded. */
  show(e) {
    const { ms, sentence, ...record } = e;
    this.detail.hidden = false;
    put(this.detail,
      el("div", { class: "detail-head" }, el("b", {}, `${e.seq} \u00b7 ${e.event}`), el("time", {}, e.at),
        el("button", { type: "button", class: "button small", on: { click: () => { this.detail.hidden = true; this.view.focus(); } } }, "Close")),
      el("p", {}, this.line(e)),
      e.evidence_summary ? summary(e.evidence_summary, e.active_channel) : null,
      (e.results ?? []).filter((r) => r.tail).map((r) => [el("h3", {}, r.cmd), el("pre", {}, r.tail)]),
      el("pre", {}, JSON.stringify(record, null, 2)));
  }
}
