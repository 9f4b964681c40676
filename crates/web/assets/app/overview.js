// The overview of all runs on the machine, live runs first.

import { el, button, put, setText } from "./dom.js";
import { plural, shortClock, span, ticking, when } from "./time.js";
import { canSteer, pauseOrResume, stop, wake, wakeable } from "./steer.js";
import { cost, countedIterations, lamp, nameOf, nextWake, pills, placeOf, stateText } from "./state.js";
import { listenKeys } from "./keys.js";
import * as api from "./api.js";

/** The polling interval. Hidden pages do not poll. */
const EVERY = 2000;
/** How many ended runs are shown at first. */
const FEW = 30;

export class Overview {
  constructor({ connection, open, search }) {
    Object.assign(this, { connection, open, runs: [], all: false, query: "", gone: new AbortController(), rows: new Map() });
    this.head = el("p", { class: "sentence" });
    this.search = el("input", { type: "search", class: "field", placeholder: "Search runs", "aria-label": "Search runs", on: { input: () => { this.query = this.search.value.toLowerCase(); this.draw(); } } });
    this.machines = el("ul", { class: "machines", "aria-label": "Other machines", hidden: true });
    this.live = el("div", { class: "runs", role: "list", "aria-label": "Active and lost runs" });
    this.past = el("div", { class: "runs past", role: "list", "aria-label": "Ended runs" });
    this.pastHead = el("h2", { class: "divider" }, "Ended");
    this.more = button("Show all", () => { this.all = true; this.draw(); }, { class: "button small" });
    this.node = el("div", { class: "overview" }, el("div", { class: "overview-head" }, this.head, this.search), this.machines, this.live, this.pastHead, this.past, this.more);
    this.pastHead.hidden = true;
    this.more.hidden = true;
  }

  mount() {
    const on = (act) => () => { const run = this.current(); if (run && canSteer(run)) act(run).then(() => this.look()); };
    this.unlisten = listenKeys({
      ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), j: () => this.move(1), k: () => this.move(-1),
      w: on(wake), p: on(pauseOrResume), s: on(stop), "/": () => this.search.focus(),
      Home: () => this.move(-Infinity), End: () => this.move(Infinity),
    });
    this.seen = () => { if (!document.hidden) this.look(); };
    document.addEventListener("visibilitychange", this.seen);
    this.loop();
  }

  unmount() {
    this.gone.abort();
    this.unlisten();
    document.removeEventListener("visibilitychange", this.seen);
  }

  async loop() {
    while (!this.gone.signal.aborted) {
      if (!document.hidden) await this.look();
      await api.pause(EVERY, this.gone.signal);
    }
  }

  async look() {
    try {
      const [runs, machines] = await Promise.all([api.runs(this.gone.signal), api.machines(this.gone.signal)]);
      this.showMachines(machines);
      this.runs = runs.map((run) => ({ ...run, name: nameOf(run) }));
      this.connection("live");
      this.draw();
    } catch (error) {
      if (!this.gone.signal.aborted) this.connection(error instanceof api.Refused && error.status === 401 ? { refused: error } : { lost: true });
    }
  }

  /** Lists the other machines, those that are not connected first. */
  showMachines({ machines, summary }) {
    const order = { down: 0, connecting: 1, up: 2 };
    const sorted = [...machines].sort((a, b) => order[a.state] - order[b.state] || cmp(a.name, b.name));
    this.machines.hidden = sorted.length === 0;
    put(this.machines, summary ? el("li", {}, summary) : null, sorted.map((machine) => el("li", { class: machine.state }, el("b", {}, machine.name), ` ${machineText(machine)}`)));
  }

  fits(run) {
    return this.query === "" || `${run.run} ${run.host ?? ""} ${run.name} ${run.project} ${run.path} ${stateText(run).join(" ")}`.toLowerCase().includes(this.query);
  }

  draw() {
    const fitting = this.runs.filter((run) => this.fits(run));
    const live = fitting.filter((run) => run.state !== "ended").sort((a, b) => rank(a) - rank(b) || cmp(b.run, a.run));
    const past = fitting.filter((run) => run.state === "ended").sort((a, b) => cmp(b.run, a.run));
    const few = this.all || this.query ? past : past.slice(0, FEW);
    this.place(this.live, live);
    this.place(this.past, few);
    this.pastHead.hidden = past.length === 0;
    this.more.hidden = few.length === past.length;
    setText(this.more.firstChild, `Show all ${past.length}`);
    put(this.head, sentence(this.runs));
    if (!this.runs.length) put(this.live, el("div", { class: "empty-sea" }, el("p", { class: "sentence" }, "No runs yet."),
      el("p", { class: "quiet" }, "Start one with ", el("code", {}, "dogwatch run my-loop"), ", or try ", el("code", {}, "dogwatch demo"), ".")));
    this.tick();
  }

  /** Reuses existing rows, so that focus and selection are kept. */
  place(shelf, runs) {
    const rows = runs.map((run) => this.row(run));
    const wanted = rows.map((row) => row.node);
    if (wanted.length !== shelf.childElementCount || wanted.some((node, i) => shelf.children[i] !== node)) {
      const focused = document.activeElement;
      shelf.replaceChildren(...wanted);
      if (focused instanceof HTMLElement && wanted.some((node) => node.contains(focused))) focused.focus();
    }
  }

  row(run) {
    let row = this.rows.get(run.run);
    if (!row) {
      row = new Row(run, this);
      this.rows.set(run.run, row);
    }
    row.show(run);
    return row;
  }

  links() { return [...this.node.querySelectorAll(".run-link")]; }
  current() {
    const row = document.activeElement?.closest?.(".run");
    return row ? this.runs.find((run) => run.run === row.dataset.run) : null;
  }

  move(by) {
    const links = this.links();
    const at = links.findIndex((link) => link.closest(".run").contains(document.activeElement));
    links[Math.max(0, Math.min(links.length - 1, at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by))]?.focus();
  }

  /** Updates the clocks every second. */
  tick() {
    for (const row of this.rows.values()) if (row.node.isConnected) row.tick();
  }
}

const cmp = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const rank = (run) => ({ needs_human: -1, working: 0, checking: 0, preparing: 0, starting: 1, waiting: 2, paused: 3, asleep: 3 }[run.state] ?? 4);

/** Summarizes all runs in one sentence. */
function sentence(runs) {
  const count = (...states) => runs.filter((run) => states.includes(run.state)).length;
  const [works, waits, paused, lost] = [count("working", "preparing", "starting", "checking"), count("waiting"), count("paused"), count("lost")];
  const asks = count("needs_human");
  const parts = [];
  if (asks) parts.push(`${spelled(asks)} ${asks === 1 ? "needs" : "need"} you`);
  if (works) parts.push(`${spelled(works)} working`);
  if (waits) {
    const next = Math.min(...runs.filter((run) => run.state === "waiting").map((run) => nextWake(run.status)?.at ?? Infinity));
    parts.push(`${spelled(waits)} waiting${Number.isFinite(next) ? `, the next wakes at ${shortClock(next)}` : ""}`);
  }
  if (paused) parts.push(`${spelled(paused)} paused`);
  const asleep = count("asleep");
  if (asleep) parts.push(`${spelled(asleep)} asleep`);
  if (lost) parts.push(`${spelled(lost)} lost`);
  if (!parts.length) return runs.length ? "No active runs." : "";
  const text = parts.join("; ");
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

const spelled = (n) => ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"][n] ?? String(n);

function machineText({ state, since, why, version, runs, detail }) {
  const long = span(Math.max(0, Math.round((Date.now() - Date.parse(since)) / 1000)));
  switch (state) {
    case "up": return `up for ${long}${version ? `, dogwatch ${version}` : ""}, ${detail ?? `${runs} live`}`;
    case "down": return `down for ${long}: ${why ?? "unknown"}`;
    default: return `connecting for ${long}`;
  }
}

class Row {
  constructor(run, page) {
    this.page = page;
    this.lamp = el("span", { class: "lamp-place" });
    this.name = el("a", { class: "run-link", href: `#/run/${run.run}` });
    this.where = el("span", { class: "where" });
    this.state = el("b", { class: "state" });
    this.why = el("span", { class: "why" });
    this.next = el("span", { class: "next" });
    this.gauge = el("span", { class: "gauge" }, el("span"));
    this.seen = el("span", { class: "seen" });
    this.tally = el("span", { class: "tally" });
    this.count = el("span", { class: "iterations" });
    this.cost = el("span", { class: "cost" });
    const act = (f) => () => f(this.run).then(() => page.look());
    this.wake = button("Wake", act(wake), { class: "button small", title: "Wake (W)" });
    this.pause = button("Pause", act(pauseOrResume), { class: "button small", title: "Pause or resume (P)" });
    this.stop = button("Stop", act(stop), { class: "button small", title: "Stop (S)" });
    this.buttons = el("span", { class: "buttons" }, this.wake, this.pause, this.stop);
    this.node = el("article", { class: "run", role: "listitem", data: { run: run.run } },
      this.lamp, el("span", { class: "who" }, this.name, this.where), el("span", { class: "how" }, this.state, this.why),
      el("span", { class: "clocks" }, this.next, this.gauge, this.seen), el("span", { class: "sums" }, this.tally, el("span", { class: "small-line" }, this.count, this.cost)), this.buttons);
  }

  show(run) {
    this.run = run;
    const [state, why] = stateText(run);
    put(this.lamp, lamp(run));
    setText(this.name, run.name);
    setText(this.where, placeOf(run));
    this.where.title = run.project ?? "";
    setText(this.state, state);
    setText(this.why, why);
    this.why.title = why;
    put(this.tally, pills(run.status));
    const n = countedIterations(run.status);
    setText(this.count, n === undefined ? "" : plural(n, "iteration"));
    setText(this.cost, cost(run.status?.spent));
    const steer = canSteer(run);
    this.buttons.hidden = !steer;
    this.wake.disabled = !wakeable(run);
    setText(this.pause.firstChild, run.status?.paused || run.status?.stopping ? "Resume" : "Pause");
    this.node.className = `run ${run.state}`;
    this.tick();
  }

  tick() {
    const { run } = this;
    const now = Date.now();
    const next = run.alive ? nextWake(run.status) : null;
    this.gauge.hidden = !next || !next.long;
    if (next) {
      const left = (next.at - now) / 1000;
      setText(this.next, left > 0 ? `wakes in ${ticking(left)}` : "wakes now");
      this.gauge.firstChild.style.width = `${Math.max(0, Math.min(100, 100 - (100 * (next.at - now)) / Math.max(1, next.long)))}%`;
    } else {
      setText(this.next, run.state === "ended" || run.state === "lost" ? ended(run) : "");
    }
    const seen = run.status?.last_evidence;
    setText(this.seen, !seen || run.state === "ended" || run.state === "lost" ? "" : `${seen.channel}, ${span(Math.max(0, Math.round((now - Date.parse(seen.at)) / 1000)))} ago`);
  }
}

function ended(run) {
  const last = run.status?.last_event?.at;
  return last ? when(Date.parse(last)) : "";
}
