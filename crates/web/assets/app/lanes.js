// The time axis on a canvas: a lane for each channel, and lanes for sessions, waits, checks and verdicts. It is drawn
// only when something has changed.

import { CHANNELS } from "./model.js";
import { el, button, put } from "./dom.js";
import { clock, day, shortClock, partOfDay } from "./time.js";
import { about } from "./evidence.js";

const AXIS = 40;
const ROW = { session: 20, channel: 26, wait: 18, check: 18, verdict: 26 };
const GAP = 5;
/** The most rows for sessions that run at the same time. */
const MAX_ROWS = 6;
/** The shortest and the longest span of the axis, in milliseconds. */
const SHORTEST = 2_000;
const LONGEST = 400 * 86_400_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000];
const LABELS = { stdout: "stdout", mcp_tool: "mcp tool", subagent: "subagent", workspace: "work tree" };
const ENDING_COLOR = {
  iteration_completed: "good", iteration_idle: "calm", iteration_failed: "bad", iteration_timed_out: "bad",
  iteration_rate_limited: "wait", iteration_auth_failed: "bad", iteration_interrupted: "dim",
};

export class Timeline {
  /** `now` returns the current time, or the end of the record. `pick` is called with a clicked item. */
  constructor(model, { now, pick, live }) {
    Object.assign(this, { model, now, pick, from: 0, to: 1, follow: true, fitted: true, only: null, hot: null, mark: -1, drawn: false, looks: [] });
    this.canvas = el("canvas", {
      class: "lanes", tabindex: "0", role: "img", "aria-describedby": "lanes-said",
      "aria-label": "Time axis. Left and right arrow keys move it, plus and minus zoom, up and down select a verdict, F follows new events.",
    });
    this.tip = el("div", { class: "tip", hidden: true });
    this.said = el("p", { class: "unseen", id: "lanes-said", "aria-live": "polite" });
    this.followButton = button("Follow", () => this.setFollow(!this.follow), { class: "button small toggle", key: "F", "aria-pressed": "true" });
    this.range = el("span", { class: "range" });
    this.node = el("div", { class: "timeline" },
      el("div", { class: "timeline-bar" }, this.range,
        el("div", { class: "buttons" },
          button("\u2212", () => this.zoom(2), { class: "button small", "aria-label": "Zoom out", title: "Zoom out (-)" }),
          button("+", () => this.zoom(0.5), { class: "button small", "aria-label": "Zoom in", title: "Zoom in (+)" }),
          button("All", () => this.fit(), { class: "button small", key: "0" }), live ? this.followButton : null)),
      el("div", { class: "lanes-box" }, this.canvas, this.tip), this.said);
    this.listen();
  }

  mount() {
    this.colors();
    this.sizes = new ResizeObserver(() => this.dirty());
    this.sizes.observe(this.canvas.parentElement);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolor = () => { this.colors(); this.dirty(); };
    this.dark.addEventListener("change", this.recolor);
    addEventListener("dogwatch:theme", this.recolor);
    this.fit();
  }

  unmount() {
    this.sizes?.disconnect();
    this.dark?.removeEventListener("change", this.recolor);
    removeEventListener("dogwatch:theme", this.recolor);
  }

  colors() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = ["deck", "sea", "line", "ink", "ink-2", "ink-3", "good", "bad", "wait", "calm", "dim", "blue", "brass", "stdout", "mcp_tool", "subagent", "workspace", "band"];
    this.c = Object.fromEntries(names.map((name) => [name, read(name)]));
    this.font = `11px ${read("sans") || "system-ui, sans-serif"}`;
  }

  dirty() {
    if (this.drawn) return;
    this.drawn = true;
    requestAnimationFrame(() => { this.drawn = false; this.draw(); });
  }

  /** Called for new events, and every second. */
  update() {
    if (this.fitted) return this.fit();
    if (this.follow) this.followNow();
    this.dirty();
  }

  /** Sets the times of the planned looks. */
  plan(looks) {
    if (looks.join() === this.looks.join()) return;
    this.looks = looks;
    this.dirty();
  }

  fit() {
    this.fitted = true;
    const now = this.now();
    const first = this.model.first ?? now - 60_000;
    const span = Math.max(now - first, 10_000);
    // The first planned look is shown if it is not too far away.
    const ahead = Math.min(Math.max(span * 0.03, ((this.looks[0] ?? now) - now) * 1.1), Math.max(span * 0.5, 30_000));
    this.setWindow(first - span * 0.01, now + ahead);
    this.setFollowState(true);
  }

  followNow() {
    const span = this.to - this.from;
    this.from = this.now() - span * 0.97;
    this.to = this.from + span;
  }

  setWindow(from, to) {
    const span = Math.min(Math.max(to - from, SHORTEST), LONGEST);
    const mid = (from + to) / 2;
    this.from = mid - span / 2;
    this.to = mid + span / 2;
    this.dirty();
  }

  zoom(factor, at = null) {
    const span = this.to - this.from;
    const anchor = at ?? (this.follow ? this.now() : (this.from + this.to) / 2);
    const share = (anchor - this.from) / span;
    const next = Math.min(Math.max(span * factor, SHORTEST), LONGEST);
    this.fitted = false;
    this.setWindow(anchor - share * next, anchor + (1 - share) * next);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.fitted = false;
    this.setFollowState(false);
    this.setWindow(this.from + by, this.to + by);
  }

  setFollow(on) {
    this.setFollowState(on);
    if (!on) this.fitted = false;
    if (on && !this.fitted) this.followNow();
    this.dirty();
  }

  setFollowState(on) {
    this.follow = on;
    this.followButton.setAttribute("aria-pressed", String(on));
  }

  /** Shows a span with a margin. */
  reveal(start, end) {
    const span = Math.max(end - start, SHORTEST);
    this.fitted = false;
    this.setFollowState(false);
    this.setWindow(start - span * 0.15, end + span * 0.15);
  }

  // ---- layout

  layout() {
    const width = this.canvas.parentElement.clientWidth;
    const gutter = width < 560 ? 74 : 84;
    const rows = this.pack();
    const lanes = [];
    let y = AXIS;
    const add = (kind, height, extra) => { lanes.push({ kind, y, height, ...extra }); y += height + GAP; };
    add("session", ROW.session * rows);
    CHANNELS.forEach((channel) => add("channel", ROW.channel, { channel }));
    add("wait", ROW.wait);
    if (this.model.checks.length) add("check", ROW.check);
    add("verdict", ROW.verdict);
    return { width, gutter, lanes, rows, height: y + 4 };
  }

  /** Assigns a row to each session, so that concurrent sessions do not overlap. */
  pack() {
    if (this.model.order.length < 2 || this.only !== null) return 1;
    if (this.packedFor === this.model.sessions.length) return this.packedRows;
    const ends = [];
    for (const session of this.model.sessions) {
      let row = ends.findIndex((end) => end <= session.start);
      if (row < 0) row = ends.length < MAX_ROWS ? ends.length : MAX_ROWS - 1;
      session.row = row;
      ends[row] = session.end ?? Infinity;
    }
    this.packedFor = this.model.sessions.every((s) => s.end !== null) ? this.model.sessions.length : -1;
    this.packedRows = Math.max(1, ends.length);
    return this.packedRows;
  }

  x(ms) { return this.g.gutter + ((ms - this.from) / (this.to - this.from)) * (this.g.width - this.g.gutter); }
  ms(x) { return this.from + ((x - this.g.gutter) / (this.g.width - this.g.gutter)) * (this.to - this.from); }
  shown(item) { return this.only === null || item.ix === undefined || item.ix === this.only; }

  // ---- drawing

  draw() {
    const g = this.layout();
    this.g = g;
    if (g.width <= 0) return;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.round(g.width * ratio), Math.round(g.height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${g.height}px`;
    }
    const p = this.canvas.getContext("2d");
    p.setTransform(ratio, 0, 0, ratio, 0, 0);
    p.clearRect(0, 0, g.width, g.height);
    p.font = this.font;
    p.textBaseline = "middle";
    this.drawAxis(p);
    p.save();
    p.beginPath();
    p.rect(g.gutter, 0, g.width - g.gutter, g.height);
    p.clip();
    this.drawSleeps(p);
    for (const lane of g.lanes) this[`draw_${lane.kind}`](p, lane);
    this.drawNow(p);
    p.restore();
    this.drawLabels(p);
    this.range.textContent = `${day(this.from)} ${clock(this.from)} \u2013 ${clock(this.to)}`;
  }

  drawAxis(p) {
    const { gutter, width, height } = this.g;
    const seconds = (this.to - this.from) / 1000;
    const room = Math.max(2, (width - gutter) / 78);
    const step = (STEPS.find((s) => seconds / s <= room) ?? STEPS.at(-1)) * 1000;
    this.drawPartsOfDay(p);
    // Ticks are at round times of the local clock.
    const shift = new Date(this.from).getTimezoneOffset() * 60_000;
    p.fillStyle = this.c["ink-3"];
    p.textAlign = "center";
    for (let t = Math.ceil((this.from - shift) / step) * step + shift; t <= this.to; t += step) {
      const x = Math.round(this.x(t)) + 0.5;
      p.strokeStyle = this.c.line;
      p.beginPath();
      p.moveTo(x, AXIS - 8);
      p.lineTo(x, height);
      p.stroke();
      if (x > gutter + 14 && x < width - 24) p.fillText(step < 60_000 ? clock(t) : step < 86_400_000 ? shortClock(t) : day(t), x, 24);
    }
  }

  /** The parts of the day as a band above the clock. They show the time of day at a glance. */
  drawPartsOfDay(p) {
    const { gutter, width } = this.g;
    if (this.to - this.from > 12 * 86_400_000) return;
    p.textAlign = "left";
    let part = partOfDay(this.from);
    for (let i = 0; i < 120 && part.from < this.to; i++, part = partOfDay(part.to + 1)) {
      const x0 = Math.max(gutter, this.x(part.from));
      const x1 = Math.min(width, this.x(part.to));
      const night = part.name === "night";
      p.fillStyle = night ? this.c.brass : this.c.band;
      p.globalAlpha = night ? 0.55 : 1;
      p.fillRect(x0 + 1, 1, Math.max(0, x1 - x0 - 2), 2);
      p.globalAlpha = 1;
      p.fillStyle = this.c["ink-3"];
      if (x1 - x0 > 86) p.fillText(part.name, x0 + 3, 11);
    }
  }

  drawSleeps(p) {
    p.fillStyle = this.c.band;
    p.globalAlpha = 0.5;
    for (const sleep of this.model.sleeps) {
      const [x0, x1] = [this.x(sleep.start), this.x(sleep.end)];
      if (x1 > this.g.gutter && x0 < this.g.width) p.fillRect(x0, AXIS, Math.max(1, x1 - x0), this.g.height - AXIS);
    }
    p.globalAlpha = 1;
  }

  drawNow(p) {
    const x = Math.round(this.x(this.now())) + 0.5;
    p.strokeStyle = this.c.brass;
    p.globalAlpha = 0.7;
    p.beginPath();
    p.moveTo(x, AXIS - 8);
    p.lineTo(x, this.g.height);
    p.stroke();
    p.globalAlpha = 1;
  }

  drawLabels(p) {
    const text = { session: "sessions", wait: "waits", check: "checks", verdict: "verdicts" };
    p.textAlign = "right";
    p.fillStyle = this.c["ink-2"];
    for (const lane of this.g.lanes) p.fillText(text[lane.kind] ?? LABELS[lane.channel], this.g.gutter - 10, lane.y + lane.height / 2);
  }

  bar(p, x0, x1, y, height, radius = 3) {
    p.beginPath();
    p.roundRect(x0, y, Math.max(1.5, x1 - x0), height, Math.min(radius, Math.max(1.5, x1 - x0) / 2));
  }

  draw_session(p, lane) {
    const now = this.now();
    let drawn = -Infinity;
    for (const s of visible(this.model.sessions, this.from, this.to, now)) {
      const [x0, x1] = [this.x(s.start), this.x(s.end ?? now)];
      if (!this.shown(s) || (this.g.rows === 1 && x1 < drawn + 0.75 && !s.stop)) continue;
      drawn = x1;
      const y = lane.y + (this.g.rows > 1 ? (s.row ?? 0) * ROW.session : 0);
      const live = s.end === null;
      const color = live ? this.c.blue : this.c[s.stop ? "bad" : ENDING_COLOR[s.ending] ?? "dim"];
      p.fillStyle = color;
      p.globalAlpha = live ? 0.32 : 0.22;
      this.bar(p, x0, x1, y, ROW.session - 2);
      p.fill();
      p.globalAlpha = 1;
      p.fillRect(x0, y + ROW.session - 4, Math.max(1.5, x1 - x0), 2);
      const label = this.model.order.length > 1 && x1 - x0 > 90 ? `${s.node} ${s.iteration}` : String(s.iteration);
      if (x1 - x0 > 8 + label.length * 6.5) {
        p.fillStyle = this.c.ink;
        p.textAlign = "left";
        p.fillText(label, Math.max(x0, this.g.gutter) + 5, y + ROW.session / 2 - 2);
      }
    }
  }

  /** Progress as bars: a taller bar means more progress. Records in the same column are added up. */
  draw_channel(p, lane) {
    const { gutter, width } = this.g;
    const mid = lane.y + lane.height / 2;
    p.fillStyle = this.c.line;
    p.fillRect(gutter, Math.round(mid), width - gutter, 1);
    if (lane.channel === "stdout") this.drawTools(p, lane);
    const columns = this.columns(this.model.lanes[lane.channel], width - gutter);
    p.fillStyle = this.c[lane.channel];
    const most = Math.log1p(Math.max(2, ...columns));
    for (let i = 0; i < columns.length; i++) {
      if (columns[i] <= 0) continue;
      const share = 0.22 + 0.78 * (Math.log1p(columns[i]) / most) ** 1.6;
      const tall = Math.max(3, lane.height * share);
      p.fillRect(gutter + i, mid - tall / 2, 1, tall);
    }
  }

  columns(lane, width) {
    const n = Math.max(1, Math.floor(width));
    const columns = new Float32Array(n);
    const scale = n / (this.to - this.from);
    const [start, end, count, node] = [lane.start.all, lane.end.all, lane.count.all, lane.node.all];
    for (let i = lane.end.from(this.from); i < lane.end.length; i++) {
      if (start[i] > this.to + lane.longest) break;
      if (this.only !== null && node[i] !== this.only) continue;
      const a = Math.max(0, Math.floor((start[i] - this.from) * scale));
      const b = Math.min(n, Math.max(a + 2, Math.ceil((end[i] - this.from) * scale)));
      const each = count[i] / Math.max(1, b - a);
      for (let x = a; x < b; x++) columns[x] += each;
    }
    return columns;
  }

  drawTools(p, lane) {
    const now = this.now();
    let drawn = -Infinity;
    for (const tool of visible(this.model.tools, this.from, this.to, now)) {
      const [x0, x1] = [this.x(tool.start), this.x(tool.end ?? now)];
      // There may be many more calls than columns: skip calls that would not change a column.
      if (!this.shown(tool) || x1 < drawn + 0.75) continue;
      drawn = x1;
      p.fillStyle = tool.ok === false ? this.c.bad : this.c.stdout;
      p.globalAlpha = 0.22;
      p.fillRect(x0, lane.y + lane.height - 5, Math.max(1, x1 - x0), 4);
      p.globalAlpha = 1;
    }
  }

  draw_wait(p, lane) {
    const now = this.now();
    const mid = Math.round(lane.y + lane.height / 2) + 0.5;
    for (const w of visible(this.model.waits, this.from, this.to, now)) {
      if (!this.shown(w)) continue;
      const [x0, x1] = [this.x(w.start), this.x(w.end ?? now)];
      p.strokeStyle = w.why === "error" || w.why === "rate_limit" ? this.c.wait : this.c.calm;
      p.lineWidth = 2;
      p.setLineDash(w.why === "paused" ? [2, 4] : []);
      p.beginPath();
      p.moveTo(x0, mid);
      p.lineTo(Math.max(x0 + 1.5, x1), mid);
      p.stroke();
      p.setLineDash([]);
      // The rest of the wait, up to its planned end.
      if (w.end === null && w.until !== null && w.until > now) {
        p.globalAlpha = 0.4;
        p.setLineDash([1, 4]);
        p.beginPath();
        p.moveTo(x1, mid);
        p.lineTo(this.x(w.until), mid);
        p.stroke();
        p.setLineDash([]);
        p.globalAlpha = 1;
      }
      p.lineWidth = 1;
      if (x1 - x0 > 6) for (const x of [x0, x1]) p.fillStyle = p.strokeStyle, p.fillRect(x - 1, mid - 4, 2, 8);
    }
    this.drawLooks(p, mid, now);
  }

  /** Draws the planned looks, or the time of the next one if it is beyond the end of the axis. */
  drawLooks(p, mid, now) {
    const next = this.looks.filter((at) => at > now);
    p.strokeStyle = p.fillStyle = this.c.brass;
    for (const at of next) {
      if (at > this.to) break;
      p.beginPath();
      p.arc(this.x(at), mid, 3, 0, 2 * Math.PI);
      p.stroke();
    }
    if (next[0] > this.to && now < this.to) {
      p.textAlign = "right";
      p.fillText(`next look ${shortClock(next[0])} \u203a`, this.g.width - 4, mid - 5);
    }
  }

  draw_check(p, lane) {
    for (const check of visible(this.model.checks, this.from, this.to, this.now())) {
      if (!this.shown(check)) continue;
      p.fillStyle = check.event.converged ? this.c.good : this.c.bad;
      this.bar(p, this.x(check.start) - 1, Math.max(this.x(check.end), this.x(check.start) + 5), lane.y + 3, lane.height - 6, 2);
      p.fill();
    }
  }

  draw_verdict(p, lane) {
    const mid = lane.y + lane.height / 2;
    let lastX = -100;
    for (const mark of marksIn(this.model.marks, this.from, this.to)) {
      const node = mark.event.node === undefined ? null : this.model.nodes.get(mark.event.node);
      if (this.only !== null && node && node.ix !== this.only) continue;
      const x = this.x(mark.at);
      const loud = mark.kind === "hard_stop" || mark.kind === "trouble" || mark.kind === "run_ended";
      if (!loud && x - lastX < 2) continue;
      lastX = x;
      shape(p, mark.kind, x, mid, this.c);
      if (mark.kind === "hard_stop" || mark.kind === "run_resumed") {
        p.strokeStyle = mark.kind === "hard_stop" ? this.c.bad : this.c.blue;
        p.globalAlpha = 0.45;
        p.setLineDash(mark.kind === "hard_stop" ? [] : [3, 3]);
        p.beginPath();
        p.moveTo(Math.round(x) + 0.5, AXIS);
        p.lineTo(Math.round(x) + 0.5, mid - 8);
        p.stroke();
        p.setLineDash([]);
        p.globalAlpha = 1;
      }
    }
    const chosen = this.model.marks[this.mark];
    if (!chosen) return;
    p.strokeStyle = this.c.ink;
    p.lineWidth = 1.5;
    p.strokeRect(this.x(chosen.at) - 9, mid - 10, 18, 20);
    p.lineWidth = 1;
  }

  // ---- input

  listen() {
    const c = this.canvas;
    const held = new Map();
    let moved = 0;
    c.addEventListener("pointerdown", (e) => { c.setPointerCapture(e.pointerId); held.set(e.pointerId, e.offsetX); moved = 0; });
    const release = (e) => {
      if (held.delete(e.pointerId) && moved < 4 && e.type === "pointerup") this.click(e);
    };
    c.addEventListener("pointerup", release);
    c.addEventListener("pointercancel", release);
    c.addEventListener("pointermove", (e) => {
      if (!held.has(e.pointerId)) return this.hover(e);
      const before = [...held.values()];
      const dx = e.offsetX - held.get(e.pointerId);
      held.set(e.pointerId, e.offsetX);
      moved += Math.abs(dx);
      const width = this.g.width - this.g.gutter;
      if (held.size === 1) { if (moved >= 4) this.pan(-dx / width); return; }
      const after = [...held.values()];
      const spread = ([a, b]) => Math.max(8, Math.abs(a - b));
      this.zoom(spread(before) / spread(after), this.ms((after[0] + after[1]) / 2));
    });
    c.addEventListener("pointerleave", () => this.hideTip());
    c.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    c.addEventListener("dblclick", (e) => this.zoom(0.4, this.ms(e.offsetX)));
    c.addEventListener("keydown", (e) => this.key(e));
    c.addEventListener("blur", () => { this.mark = -1; this.hideTip(); this.dirty(); });
  }

  /** The wheel scrolls the page. With Ctrl it zooms the axis, and sideways it moves the axis. */
  wheel(e) {
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.01), this.ms(e.offsetX));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      this.pan((e.deltaX || e.deltaY) / (this.g.width - this.g.gutter));
    }
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const acts = {
      ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      0: () => this.fit(), ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), Home: () => this.fit(), End: () => this.setFollow(true),
      Enter: () => { const mark = this.model.marks[this.mark]; if (mark) this.pick({ event: mark.event }); },
    };
    const act = acts[e.key];
    if (!act) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  }

  /** Selects the next or previous verdict, and announces it. */
  step(by) {
    const marks = this.model.marks;
    if (!marks.length) { this.said.textContent = "No verdicts yet."; return; }
    if (this.mark < 0) this.mark = by > 0 ? Math.min(marks.findIndex((m) => m.at >= this.from), marks.length - 1) : marks.length;
    else this.mark += by;
    this.mark = Math.max(0, Math.min(marks.length - 1, this.mark === marks.length ? this.mark - 1 : this.mark));
    const mark = marks[this.mark];
    if (mark.at < this.from || mark.at > this.to) {
      const span = this.to - this.from;
      this.fitted = false;
      this.setFollowState(false);
      this.setWindow(mark.at - span / 2, mark.at + span / 2);
    }
    this.draw();
    const lane = this.g.lanes.at(-1);
    this.showTip(this.x(mark.at), lane.y, about(this.model, { mark, at: mark.at }));
    this.said.textContent = this.tip.textContent;
  }

  /** Returns the item at a point. */
  under(x, y) {
    if (!this.g || x < this.g.gutter) return null;
    const at = this.ms(x);
    const now = this.now();
    const lane = this.g.lanes.find((l) => y >= l.y - GAP / 2 && y < l.y + l.height + GAP / 2);
    const near = (6 / (this.g.width - this.g.gutter)) * (this.to - this.from);
    const hit = (items) => visible(items, at - near, at + near, now).filter((i) => this.shown(i)).at(-1);
    switch (lane?.kind) {
      case "session": {
        const row = this.g.rows > 1 ? Math.floor((y - lane.y) / ROW.session) : 0;
        return { at, session: visible(this.model.sessions, at - near, at + near, now).filter((s) => this.shown(s) && (this.g.rows === 1 || s.row === row)).at(-1) };
      }
      case "channel": return { at, channel: lane.channel, tool: lane.channel === "stdout" ? hit(this.model.tools) : undefined };
      case "wait": return { at, look: this.looks.find((look) => look > now && Math.abs(look - at) <= near), wait: hit(this.model.waits) };
      case "check": return { at, check: hit(this.model.checks) };
      case "verdict": {
        const close = marksIn(this.model.marks, at - near, at + near);
        const rank = (m) => (m.kind === "hard_stop" || m.kind === "trouble" ? 0 : 1);
        return { at, mark: close.sort((a, b) => rank(a) - rank(b) || Math.abs(a.at - at) - Math.abs(b.at - at))[0] };
      }
      default: return { at };
    }
  }

  hover(e) {
    const found = this.under(e.offsetX, e.offsetY);
    if (!found) return this.hideTip();
    this.showTip(e.offsetX, e.offsetY, about(this.model, found));
  }

  click(e) {
    const found = this.under(e.offsetX, e.offsetY);
    if (found) this.pick(found);
  }

  showTip(x, y, content) {
    put(this.tip, content);
    this.tip.hidden = false;
    const { width } = this.g;
    const [w, h] = [this.tip.offsetWidth, this.tip.offsetHeight];
    const left = x + 16 + w > width ? Math.max(0, x - w - 14) : x + 16;
    this.tip.style.left = `${left}px`;
    // Show the tooltip below the pointer if it fits into the window.
    const box = this.canvas.getBoundingClientRect();
    const below = box.top + y + 18 + h < innerHeight;
    this.tip.style.top = `${below ? y + 18 : y - h - 12}px`;
  }

  hideTip() { this.tip.hidden = true; }
}

/** Returns the items that overlap the span. Items are sorted by start, and few of them are long. */
function visible(items, from, to, now) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (items[mid].start <= to) low = mid + 1; else high = mid;
  }
  const found = [];
  // Search backward from the end of the window, and a little further for items that began long before it.
  for (let i = low - 1, misses = 0; i >= 0 && misses < 64; i--) {
    if ((items[i].end ?? now) >= from) { found.push(items[i]); misses = 0; } else misses += 1;
  }
  return found.reverse();
}

function marksIn(marks, from, to) {
  let [low, high] = [0, marks.length];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (marks[mid].at < from) low = mid + 1; else high = mid;
  }
  const found = [];
  for (let i = low; i < marks.length && marks[i].at <= to; i++) found.push(marks[i]);
  return found;
}

const PATHS = {
  hard_stop: [[0, -7], [7, 0], [0, 7], [-7, 0]], trouble: [[0, -7], [7, 6], [-7, 6]],
  check_tampered: [[0, -7], [7, 6], [-7, 6]],
  told: [[-3, -7], [6, -3.5], [-3, 0]], notice: [[-4, -4], [4, -4], [4, 4], [-4, 4]], recovery_planned: [[-5, -6], [6, 0], [-5, 6]],
};
const COLORS = { hard_stop: "bad", trouble: "bad", watchdog_continue: "brass", notice: "brass", told: "blue", run_resumed: "blue", recovery_planned: "brass", marker_seen: "calm", needs_human: "brass", check_tampered: "bad" };
const HOLLOW = new Set(["watchdog_continue", "notice", "marker_seen", "run_resumed"]);

/** Draws a mark. Kinds differ in shape as well as in color. */
function shape(p, kind, x, y, c) {
  const color = c[COLORS[kind] ?? "ink-2"];
  p.beginPath();
  if (PATHS[kind]) PATHS[kind].forEach(([dx, dy], i) => (i ? p.lineTo(x + dx, y + dy) : p.moveTo(x + dx, y + dy)));
  else if (kind === "run_ended") p.rect(x - 1.5, y - 9, 3, 18);
  else p.arc(x, y, kind === "marker_seen" ? 3 : 4.5, 0, 7);
  p.closePath();
  if (HOLLOW.has(kind)) {
    p.fillStyle = c.deck;
    p.fill();
    p.strokeStyle = color;
    p.lineWidth = 1.5;
    p.stroke();
    p.lineWidth = 1;
  } else {
    p.fillStyle = color;
    p.fill();
  }
  if (kind === "told") { p.fillStyle = color; p.fillRect(x - 4, y - 7, 1.5, 14); }
}
