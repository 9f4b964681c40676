// Formats durations, times and amounts, and computes the part of the day of a time.

const two = (n) => String(n).padStart(2, "0");

/** `4 s`, `2 m 05 s`, `1 h 12 m`, `3 d 4 h` */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "?";
  if (seconds < 1 && seconds > 0) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${Math.round(seconds * 10) / 10} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** Formats a counter that changes every second, without fractions. */
export function ticking(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const [h, m] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60)];
  return h > 0 ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

export function clock(ms, withMillis = false) {
  const d = new Date(ms);
  const base = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return withMillis ? `${base}.${String(d.getMilliseconds()).padStart(3, "0")}` : base;
}

export function shortClock(ms) {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}`;
}

export function day(ms) {
  return new Date(ms).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" });
}

/** `today 21:04`, `yesterday 03:10`, `Sun, 15 Nov 21:04` */
export function when(ms, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (ms >= midnight && ms < midnight + 86400e3) return `today ${shortClock(ms)}`;
  if (ms >= midnight - 86400e3 && ms < midnight) return `yesterday ${shortClock(ms)}`;
  return `${day(ms)} ${shortClock(ms)}`;
}

const PARTS = [[0, "night"], [6, "morning"], [12, "afternoon"], [18, "evening"], [24, "night"]];

/** Returns the part of the day of a time, with its start and end. */
export function partOfDay(ms) {
  const d = new Date(ms);
  const at = PARTS.findLastIndex(([hour]) => hour <= d.getHours());
  const edge = (hour) => new Date(d.getFullYear(), d.getMonth(), d.getDate(), hour).getTime();
  return { name: PARTS[at][1], from: edge(PARTS[at][0]), to: edge(PARTS[at + 1][0]) };
}

/** Formats `$0.41`, `$12.30`; null means unknown, never zero. */
export function money(usd) {
  if (usd === null || usd === undefined) return "?";
  return usd > 0 && usd < 0.01 ? "<$0.01" : `$${usd.toFixed(2)}`;
}

export function amount(n) {
  if (n < 1000) return String(n);
  if (n < 999_500) return `${(n / 1000).toFixed(n < 9950 ? 1 : 0)}k`;
  return `${(n / 1e6).toFixed(1)}M`;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1024 * 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`;
}

export function plural(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

export function ordinal(n) {
  const tail = n % 100 >= 11 && n % 100 <= 13 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return `${n}${tail}`;
}
