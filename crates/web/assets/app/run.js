// The page of one run: state, time axis, nodes, log and output.

import { el, button, put, setText, toast } from "./dom.js";
import { day, money, amount, plural, shortClock, span, ticking } from "./time.js";
import { oneLine } from "./text.js";
import { Model } from "./model.js";
import { Timeline } from "./lanes.js";
import { drawGraph, ticks } from "./graph.js";
import { EventList } from "./list.js";
import { Output } from "./output.js";
import { countedIterations, lamp, nameOf, nextWake, pills, stateText, windowsText } from "./state.js";
import { canSteer, pauseOrResume, stop, tell, wake, wakeable } from "./steer.js";
import { listenKeys } from "./keys.js";
import { drawForecast, plannedLooks } from "./forecast.js";
import * as api from "./api.js";

/** The shortest interval between two status requests, in milliseconds. */
const STATUS_EVERY = 250;
/** The longest message to the agent, in characters. */
const MAX_TELL = 4000;

/** The page of a run. Without `live` it is a report: it has the complete record and sends no requests. */
export class RunPage {
  constructor(id, { connection, live = true, diffs = null, summary = [] }) {
    Object.assign(this, { id, connection, live, run: { run: id, alive: false, state: "unknown", status: null, name: id }, gone: new AbortController(), only: null });
    this.model = new Model();
    this.timeline = new Timeline(this.model, { now: () => this.now(), pick: (found) => this.pick(found), live });
    this.list = new EventList(this.model, { fromEnd: live });
    this.output = new Output(this.model, id, { diffs });
    this.build(summary);
  }

  build(summary) {
    this.lamp = el("span", { class: "lamp-place" });
    this.title = el("h1", {}, this.id);
    this.where = el("p", { class: "where" });
    this.state = el("b", { class: "state" });
    this.why = el("span", { class: "why" });
    this.next = el("p", { class: "next" });
    this.facts = el("dl", { class: "facts" });
    this.graph = el("section", { class: "panel nodes" });
    this.expected = el("section", { class: "panel", hidden: true });
    this.loading = el("p", { class: "loading", role: "status" });
    const act = (f) => () => f(this.run).then(() => this.refreshSoon());
    this.wakeButton = button("Wake", act(wake), { class: "button", key: "W" });
    this.pauseButton = button("Pause", act(pauseOrResume), { class: "button", key: "P" });
    this.stopButton = button("Stop", act(stop), { class: "button danger", key: "S" });
    this.tellField = el("input", { class: "field tell-field", maxlength: String(MAX_TELL), placeholder: "Message to the agent", "aria-label": "Message to the agent, sent with the next prompt" });
    this.tellForm = el("form", { class: "tell", on: { submit: (e) => { e.preventDefault(); this.send(); } } }, this.tellField, el("button", { class: "button", type: "submit" }, "Send"));
    this.steer = el("div", { class: "steer" }, el("div", { class: "buttons" }, this.wakeButton, this.pauseButton, this.stopButton), this.tellForm);
    this.steer.hidden = true;
    this.node = el("div", { class: `run-page${this.live ? "" : " report"}` },
      el("header", { class: "run-head" },
        el("div", { class: "run-title" }, this.live ? el("a", { class: "back", href: "#/", "aria-label": "All runs" }, "\u2190") : null, this.lamp, el("div", {}, this.title, this.where)),
        el("div", { class: "run-state" }, el("p", {}, this.state, " ", this.why), this.next), this.steer),
      summary.length ? el("dl", { class: "summary" }, summary.map(([title, text]) => [el("dt", {}, title), el("dd", {}, text)])) : null,
      this.facts, this.loading,
      el("section", { class: "panel time" }, this.timeline.node), this.expected, this.graph,
      el("div", { class: "columns" }, this.list.node, this.output.view));
  }

  now() {
    return this.running() ? Math.max(Date.now(), this.model.last ?? 0) : this.model.last ?? Date.now();
  }

  running() { return this.live && this.run.alive && !this.model.ended; }

  mount() {
    this.timeline.mount();
    const steer = (f) => () => { if (canSteer(this.run)) f(this.run).then(() => this.refreshSoon()); };
    const t = this.timeline;
    this.unlisten = listenKeys({
      ...(this.live ? { w: steer(wake), p: steer(pauseOrResume), s: steer(stop), m: () => this.tellField.focus(), Escape: () => { location.hash = "#/"; } } : {}),
      f: () => t.setFollow(!t.follow), "+": () => t.zoom(0.5), "=": () => t.zoom(0.5), "-": () => t.zoom(2), 0: () => t.fit(),
      ArrowLeft: () => t.pan(-0.1), ArrowRight: () => t.pan(0.1), "/": () => this.list.search.focus(),
    });
    if (this.live) this.load();
  }

  unmount() {
    this.gone.abort();
    this.timeline.unmount();
    this.unlisten();
  }

  async load() {
    const { signal } = this.gone;
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        await this.refresh();
        setText(this.loading, "Reading the record\u2026");
        await api.pastEvents(this.id, this.model.seq, (batch) => { this.model.take(batch); this.showLoading(); }, signal);
        break;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof api.Refused && error.status === 404) return this.missing(error);
        this.connection(error instanceof api.Refused && error.status === 401 ? { refused: error } : { lost: true });
        await api.pause(Math.min(1000 * 2 ** tries, 20_000), signal);
      }
    }
    setText(this.loading, "");
    this.drawAll();
    this.node.dataset.ready = String(this.model.events.length);
    if (!this.running()) { this.connection(null); return; }
    await api.follow(this.id, {
      after: () => this.model.seq, signal, over: () => this.model.ended !== null, report: (state) => { this.connection(state); if (state === "live") this.refresh().catch(() => {}); },
      // A batch can also contain a notice that the run has lost its supervisor.
      take: (batch) => { this.model.take(batch); this.soon(); if (batch.some((e) => e.alive === false)) this.refresh().catch(() => {}); },
    });
    if (!signal.aborted && this.model.ended) { await this.refresh(); this.connection(null); }
  }

  /** Shows the progress at a limited rate, because drawing costs more than reading. */
  showLoading() {
    if (performance.now() - (this.loadingShownAt ?? 0) < 200) return;
    this.loadingShownAt = performance.now();
    setText(this.loading, `Reading the record: ${plural(this.model.events.length, "event")}\u2026`);
  }

  missing(error) {
    this.connection("live");
    put(this.node, el("div", { class: "empty-sea" }, el("p", { class: "sentence" }, "Run not found."), el("p", { class: "quiet" }, error.message), el("a", { href: "#/" }, "All runs")));
  }

  /** Draws once for many events that arrive together. */
  soon() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => { this.waiting = false; if (!this.gone.signal.aborted) { this.drawAll(); this.refreshSoon(); } }, 80);
  }

  refreshSoon() {
    if (this.refreshing) return;
    this.refreshing = true;
    setTimeout(() => { this.refreshing = false; if (!this.gone.signal.aborted) this.refresh().catch(() => {}); }, STATUS_EVERY);
  }

  async refresh() {
    const run = await api.run(this.id, this.gone.signal);
    this.show(run);
  }

  /** Shows a run: `{run, project, path, alive, state, status}`. */
  show(run) {
    this.run = { ...run, name: nameOf(run) };
    document.title = `${this.run.name} \u2013 dogwatch`;
    this.drawHead();
  }

  drawAll() {
    this.timeline.update();
    this.list.update();
    this.output.update();
    this.drawNodes();
    this.drawHead();
  }

  drawHead() {
    const { run } = this;
    const [state, why] = stateText(run);
    put(this.lamp, lamp(run));
    setText(this.title, run.name);
    setText(this.where, [run.project ?? run.status?.work_dir, run.run].filter(Boolean).join("  \u00b7  "));
    setText(this.state, state);
    setText(this.why, why);
    const steer = this.live && canSteer(run);
    this.steer.hidden = !steer;
    this.timeline.followButton.hidden = !this.running();
    this.wakeButton.disabled = !wakeable(run);
    setText(this.pauseButton.firstChild, run.status?.paused || run.status?.stopping ? "Resume" : "Pause");
    this.drawFacts();
    drawForecast(this.expected, run.status);
    this.timeline.plan(this.running() ? plannedLooks(run.status) : []);
    this.tickHead();
  }

  drawFacts() {
    const { model, run } = this;
    const spent = this.spent();
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
    const status = run.status;
    const lasted = this.lasted();
    const agent = (model.started?.agent ?? "").trim();
    put(this.facts,
      model.first === null ? null : fact("Started", `${day(model.first)} ${shortClock(model.first)}`),
      lasted === null ? null : fact(model.ended ? "Duration" : "Elapsed", span(Math.round(lasted))),
      fact("Iterations", el("b", {}, String(countedIterations(status) ?? model.iterations.length)), " ", pills(status)),
      fact("Cost", spent.cost === null ? (spent.unknown ? "unknown" : "\u2013") : `${money(spent.cost)}${spent.unknown ? " and more" : ""}`, spent.tokens === null ? "" : `, ${amount(spent.tokens)} tokens`),
      status?.windows?.length ? fact("Windows", windowsText(status.windows)) : null,
      agent ? fact("Agent", el("code", {}, oneLine(agent, 80))) : null,
      status?.told?.length ? fact("Pending messages", oneLine(status.told.join("; "), 120)) : null,
      status?.record_problem ? fact("Record", el("b", { class: "bad" }, oneLine(status.record_problem, 200))) : null,
      status?.troubles?.last ? fact("Last trouble", oneLine(status.troubles.last.detail, 160)) : null);
  }

  lost() { return this.run.status?.state === "lost"; }

  /** Returns how long the run lasted, in seconds. The events do not say when a lost run lost its supervisor; the status does. */
  lasted() {
    const { model, run } = this;
    if (this.lost()) return run.status.supervised_s;
    return model.first === null ? null : ((model.ended || !run.alive ? model.last : this.now()) - model.first) / 1000;
  }

  /** Returns what all sessions used. Without a supervisor no event charges an open session; the status does. */
  spent() {
    if (!this.lost()) return this.model.spent();
    const { tokens, cost_usd, unknown_cost } = this.run.status.spent;
    return { tokens: tokens || null, cost: cost_usd || null, unknown: unknown_cost };
  }

  /** Called every second. */
  tick() {
    this.tickHead();
    if (this.running() && !document.hidden) this.timeline.update();
  }

  tickHead() {
    const { run } = this;
    const now = Date.now();
    const next = run.alive ? nextWake(run.status) : null;
    const seen = run.status?.last_evidence;
    const parts = [];
    if (next) parts.push(next.at > now ? `wakes in ${ticking((next.at - now) / 1000)}, at ${shortClock(next.at)}` : "wakes now");
    if (seen && this.running()) parts.push(`last activity on ${seen.channel}, ${span(Math.max(0, Math.round((now - Date.parse(seen.at)) / 1000)))} ago`);
    setText(this.next, parts.join("; "));
  }

  drawNodes() {
    const { model } = this;
    const focused = this.graph.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label")?.split(":")[0] : null;
    const rows = model.order.filter((node) => this.only === null || node.ix === this.only).slice(0, 12)
      .map((node) => el("div", { class: "tick-row" }, model.order.length > 1 ? el("span", { class: "tick-name" }, node.name) : null, ticks(node, (i) => this.pickIteration(i))));
    const one = model.order.length < 2;
    this.graph.classList.toggle("one", one);
    put(this.graph, one ? null : el("div", { class: "panel-bar" }, el("h2", {}, "Nodes"),
      this.only === null ? null : button("Show all nodes", () => this.choose(null), { class: "button small" })),
    drawGraph(model, { chosen: this.only, choose: (ix) => this.choose(one ? null : ix) }), el("div", { class: "tick-rows" }, rows));
    if (focused) [...this.graph.querySelectorAll("[aria-label]")].find((node) => node.getAttribute("aria-label").startsWith(`${focused}:`))?.focus();
  }

  /** Shows only one node, or all nodes. */
  choose(ix) {
    this.only = ix;
    this.timeline.only = ix;
    this.timeline.dirty();
    this.list.filter({ only: ix });
    this.drawNodes();
  }

  pickIteration(i) {
    this.timeline.reveal(i.start, i.end ?? this.now());
    this.output.pick(i);
    if (i.event) this.list.reveal(i.event);
  }

  /** Handles a click on the time axis. */
  pick(found) {
    const event = found.event ?? found.mark?.event ?? found.check?.event ?? found.session?.stop ?? found.session?.event;
    if (event) this.list.reveal(event);
    const iteration = found.session ? this.model.iterations.find((i) => i.session === found.session) : null;
    if (iteration) this.output.pick(iteration);
  }

  async send() {
    const text = this.tellField.value.trim();
    if (text === "") return toast("The message is empty.");
    if (await tell(this.run, text)) { this.tellField.value = ""; this.refreshSoon(); }
  }
}
