// The model of a run, folded from its events. The time axis, the graph and the lists draw it.

import { ENDINGS } from "./words.js";

export const CHANNELS = ["stdout", "mcp_tool", "subagent", "workspace"];

/** Beyond this many events the list drops progress, then the older half. The time axis keeps the progress. */
export const MAX_EVENTS = 400_000;
/** Beyond this many records of one channel, neighboring records are merged in pairs. */
export const MAX_RECORDS = 1_000_000;

/** A growing array of numbers, without an object for each. */
class Numbers {
  constructor() { this.all = new Float64Array(1024); this.length = 0; }
  push(n) {
    if (this.length === this.all.length) {
      const more = new Float64Array(this.all.length * 2);
      more.set(this.all);
      this.all = more;
    }
    this.all[this.length++] = n;
  }
  /** Returns the first index whose number is not below `n`. The numbers are sorted. */
  from(n) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.all[mid] < n) low = mid + 1; else high = mid;
    }
    return low;
  }
}

/** The observations of one channel. Ends are sorted, so that a binary search finds the last one before a time. */
export class Lane {
  constructor() {
    this.start = new Numbers();
    this.end = new Numbers();
    this.count = new Numbers();
    this.node = new Numbers();
    this.longest = 0;
  }
  add(start, end, count, node) {
    // Keep the order even if a line was written late.
    const last = this.end.length ? this.end.all[this.end.length - 1] : -Infinity;
    const till = Math.max(end, last);
    this.start.push(Math.min(start, till));
    this.end.push(till);
    this.count.push(count);
    this.node.push(node);
    this.longest = Math.max(this.longest, till - start);
    if (this.end.length >= MAX_RECORDS) this.halve();
  }
  /** Merges neighboring records. With a million records, no pixel would show the difference. */
  halve() {
    const old = { start: this.start.all, end: this.end.all, count: this.count.all, node: this.node.all, length: this.end.length };
    for (const name of ["start", "end", "count", "node"]) this[name] = new Numbers();
    for (let i = 0; i < old.length; i += 2) {
      const j = Math.min(i + 1, old.length - 1);
      this.start.push(Math.min(old.start[i], old.start[j]));
      this.end.push(old.end[j]);
      this.count.push(i === j ? old.count[i] : old.count[i] + old.count[j]);
      this.node.push(old.node[i]);
      this.longest = Math.max(this.longest, old.end[j] - old.start[i]);
    }
  }
  /** Returns the time of the last observation before `at`. */
  lastBefore(at) {
    const next = this.end.from(at + 0.5);
    if (next < this.end.length && this.start.all[next] <= at) return at;
    return next > 0 ? this.end.all[next - 1] : null;
  }
}

/** The events that are marks on the verdict lane. */
const MARKS = new Set(["hard_stop", "trouble", "watchdog_continue", "notice", "told", "run_resumed", "recovery_planned", "marker_seen", "run_ended", "needs_human", "check_tampered"]);

export class Model {
  constructor() {
    this.events = [];
    this.seq = 0;
    this.started = null;
    this.ended = null;
    this.first = null;
    this.last = null;
    this.lanes = Object.fromEntries(CHANNELS.map((channel) => [channel, new Lane()]));
    this.sessions = [];
    this.iterations = [];
    this.waits = [];
    this.checks = [];
    this.tools = [];
    this.marks = [];
    this.sleeps = [];
    this.nodes = new Map();
    this.order = [];
    this.forgotten = 0;
    this.paused = false;
  }

  node(name) {
    const known = this.nodes.get(name);
    if (known) return known;
    const node = {
      name, ix: this.order.length, state: "pending", reason: null, iteration: 0, doing: "nothing", depends_on: [], plan: null,
      endings: [], open: null, session: null, wait: null, used: { tokens: null, cost: null }, tools: new Map(), attempts: 0, flake: false,
    };
    this.nodes.set(name, node);
    this.order.push(node);
    return node;
  }

  /** Adds events in order. Skips known and out-of-order events. */
  take(batch) {
    for (const e of batch) {
      if (!(e.seq > this.seq)) continue;
      this.seq = e.seq;
      const at = Date.parse(e.at);
      if (Number.isNaN(at)) continue;
      e.ms = at;
      this.first ??= at;
      this.last = Math.max(this.last ?? at, at);
      this.events.push(e);
      this.apply(e, at, e.node === undefined ? null : this.node(e.node));
    }
    if (this.events.length > MAX_EVENTS) this.forget();
  }

  /** Limits the list of events. Important events are dropped last. */
  forget() {
    const before = this.events.length;
    this.events = this.events.filter((e) => e.event !== "observed" && e.event !== "fact" && e.event !== "used");
    if (this.events.length > MAX_EVENTS / 2) this.events.splice(1, this.events.length - MAX_EVENTS / 2);
    this.forgotten += before - this.events.length;
  }

  apply(e, at, node) {
    if (e.event === "observed") return this.observed(e, at, node);
    if (e.event === "fact") return this.fact(e, at, node);
    if (ENDINGS[e.event]) return this.iterationEnded(e, at, node);
    if (MARKS.has(e.event)) this.marks.push({ at, kind: e.event, event: e });
    this.milestone(e, at, node);
  }

  /** Applies an event that changes the state of a node or of the run. */
  milestone(e, at, node) {
    switch (e.event) {
      case "run_started": return this.start(e);
      case "run_resumed": return this.resume(at);
      case "node_transition": node.state = e.to; node.reason = e.reason ?? null; return;
      case "iteration_started":
        Object.assign(node, { iteration: e.iteration, doing: "preparing" });
        node.open = { node: node.name, ix: node.ix, iteration: e.iteration, cause: e.cause, start: at, end: null, ending: null, event: null, stop: null, session: null };
        this.iterations.push(node.open);
        return;
      case "session_started": return this.sessionStarted(e, at, node);
      case "session_ended": return this.sessionEnded(e, at, node);
      case "hard_stop": if (node.session) node.session.stop = e; if (node.open) node.open.stop = e; return;
      case "used": node.using = e; return;
      case "needs_human": node.doing = "asking"; return;
      case "needs_human_ended": node.doing = node.session ? "working" : "preparing"; return;
      case "checks_started": node.doing = "checking"; node.checking = at; return;
      case "wait_started":
        this.closeWait(node, at, "next");
        node.wait = { node: node.name, ix: node.ix, why: e.why, start: at, end: null, until: e.until ? Date.parse(e.until) : null, delay: e.delay_s, by: null };
        node.doing = "waiting";
        this.waits.push(node.wait);
        return;
      case "wait_ended": this.closeWait(node, at, e.by); node.doing = "nothing"; return;
      case "node_attempt": return this.attempt(e, at, node);
      case "suspended": this.sleeps.push({ start: at - (e.for_s ?? 0) * 1000, end: at }); return;
      case "paused": this.paused = true; return;
      case "unpaused": this.paused = false; return;
      case "run_ended": this.ended = e; this.order.forEach((n) => this.close(n, at)); return;
      default:
    }
  }

  start(e) {
    this.started = e;
    const plans = new Map((e.settings?.nodes ?? []).map((plan) => [plan.name, plan]));
    for (const name of e.nodes ?? []) {
      const node = this.node(name);
      node.plan = plans.get(name) ?? null;
      node.depends_on = (node.plan?.depends_on ?? []).filter((other) => (e.nodes ?? []).includes(other));
    }
  }

  /** Closes what was open when the previous supervisor was lost, at the time of its last event. */
  resume(at) {
    const before = this.events.length > 1 ? this.events[this.events.length - 2].ms : at;
    this.order.forEach((node) => {
      // No other event charges an interrupted session, and the next session's reports replace its last one.
      if (node.session) this.charge(node, node.using);
      this.close(node, before);
    });
    this.ended = null;
  }

  close(node, at) {
    if (node.session) { node.session.end = at; node.session = null; }
    this.closeWait(node, at, "lost");
    node.tools.forEach((tool) => { tool.end = at; });
    node.tools.clear();
    node.doing = "nothing";
  }

  closeWait(node, at, by) {
    if (!node.wait) return;
    Object.assign(node.wait, { end: at, by });
    node.wait = null;
  }

  sessionStarted(e, at, node) {
    node.session = { node: node.name, ix: node.ix, iteration: e.iteration, start: at, end: null, event: null, stop: null, ending: null, pid: e.pid };
    node.doing = "working";
    if (node.open) node.open.session = node.session;
    this.sessions.push(node.session);
  }

  sessionEnded(e, at, node) {
    if (node.session) Object.assign(node.session, { end: at, event: e });
    node.tools.forEach((tool) => { tool.end = at; });
    node.tools.clear();
    node.session = null;
    node.doing = "preparing";
    this.charge(node, e);
  }

  /** Adds the usage of a session that is over. One without a cost was not free: its cost is unknown. */
  charge(node, usage) {
    node.used.tokens = add(node.used.tokens, usage?.tokens);
    node.used.cost = add(node.used.cost, usage?.cost_usd);
    if (usage?.cost_usd === undefined) node.unknown = (node.unknown ?? 0) + 1;
    node.using = null;
  }

  iterationEnded(e, at, node) {
    const open = node.open ?? this.iterations.findLast((i) => i.node === node.name && i.iteration === e.iteration);
    if (open) {
      Object.assign(open, { end: at, ending: e.event, event: e });
      if (open.session) open.session.ending = e.event;
      node.endings.push(open);
    }
    node.open = null;
    node.doing = "nothing";
  }

  attempt(e, at, node) {
    const check = { node: node.name, ix: node.ix, iteration: e.iteration, start: node.checking ?? at, end: at, event: e };
    node.checking = null;
    this.checks.push(check);
    const iteration = node.open ?? node.endings.findLast((i) => i.iteration === e.iteration);
    if (iteration) iteration.checks = e;
    // Where progress is not charged, only a check that failed and passed on the same work tree is flaky.
    const flaky = node.plan?.checks?.attempts === "progress" ? (e.results ?? []).some((r) => r.flaky) : node.attempts > 0;
    if (e.converged && flaky) node.flake = true;
    if (!e.converged && !e.uncounted) node.attempts += 1;
  }

  observed(e, at, node) {
    const lane = this.lanes[e.channel];
    if (!lane) return;
    const wall = (ms) => at - (e.awake_ms - ms);
    lane.add(wall(e.first_ms), wall(e.last_ms), e.count ?? 1, node.ix);
  }

  /** The start or end of a tool is progress on stdout, and on mcp_tool for an MCP tool. Heartbeats do not count. */
  fact(e, at, node) {
    if (e.fact === "tool_started") {
      if (!e.heartbeat) this.lanes.stdout.add(at, at, 1, node.ix);
      const mcp = e.mcp === true && !e.heartbeat;
      const tool = { node: node.name, ix: node.ix, name: e.name, label: e.sentence?.replace("\u2192 ", "") ?? e.name, start: at, end: null, ok: null, mcp };
      if (tool.mcp) this.lanes.mcp_tool.add(at, at, 1, node.ix);
      node.tools.set(e.id, tool);
      this.tools.push(tool);
    } else if (e.fact === "tool_ended") {
      if (!e.heartbeat) this.lanes.stdout.add(at, at, 1, node.ix);
      const tool = node.tools.get(e.id);
      if (tool) Object.assign(tool, { end: at, ok: e.ok });
      if (tool?.mcp) this.lanes.mcp_tool.add(at, at, 1, node.ix);
      node.tools.delete(e.id);
    } else if (e.fact === "observed") {
      this.observed(e, at, node);
    }
  }

  /** Returns the tokens and the cost of all sessions; null while unknown. */
  spent() {
    const sum = { tokens: null, cost: null, unknown: 0 };
    for (const node of this.order) {
      sum.tokens = add(add(sum.tokens, node.used.tokens), node.using?.tokens);
      sum.cost = add(add(sum.cost, node.used.cost), node.using?.cost_usd);
      sum.unknown += node.unknown ?? 0;
    }
    return sum;
  }

  /** Returns the age of the last observation of each channel at a time. */
  evidenceAt(at) {
    return CHANNELS.map((channel) => {
      const last = this.lanes[channel].lastBefore(at);
      return { channel, age: last === null ? null : Math.max(0, at - last) / 1000 };
    });
  }
}

function add(sum, more) {
  if (more === undefined || more === null) return sum;
  return (sum ?? 0) + more;
}
