// When work is expected: a chart of the week and a line about the next look.

import { el, put } from "./dom.js";
import { shortClock, when } from "./time.js";

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/** The number of nodes of a graph that are shown. */
const MAX_NODES = 6;

/** Returns the forecasts in a status. */
export function forecasts(status) {
  return (status?.nodes ?? []).map((node) => node.forecast).filter(Boolean);
}

/** Returns the times of the planned looks, in milliseconds. */
export function plannedLooks(status) {
  return forecasts(status).flatMap((f) => (f.looks ?? []).map((look) => Date.parse(look.at))).filter((at) => !Number.isNaN(at));
}

function chart(f) {
  const hours = [...Array(24).keys()];
  const head = el("tr", {}, el("td", {}), hours.map((h) => el("th", { scope: "col" }, h % 6 === 0 ? String(h).padStart(2, "0") : "")));
  const rows = DAYS.map((day, d) => el("tr", {}, el("th", { scope: "row" }, day), hours.map((h) => {
    const level = Math.min(8, Math.max(0, Number(f.week?.[d * 24 + h]) || 0));
    return el("td", { class: `heat heat-${level}`, title: `${day} ${String(h).padStart(2, "0")}:00, level ${level} of 8` });
  })));
  return el("table", { class: "heat-map", "aria-label": "Arrivals of work by weekday and hour" }, head, rows);
}

function facts(f) {
  const looks = (f.looks ?? []).slice(0, 6).map((look) => shortClock(Date.parse(look.at)));
  const expected = f.expected_at ? `work expected by ${when(Date.parse(f.expected_at))}` : null;
  return [f.explanation, expected, looks.length ? `planned looks: ${looks.join(", ")}` : null].filter(Boolean)
    .map((line) => el("p", {}, line));
}

/** Draws the forecasts into a panel, and hides it if there are none. */
export function drawForecast(panel, status) {
  const all = forecasts(status).slice(0, MAX_NODES);
  panel.hidden = all.length === 0;
  if (panel.hidden) return;
  put(panel, el("div", { class: "panel-bar" }, el("h2", {}, "Expected work")),
    all.map((f) => el("div", { class: "forecast" }, el("div", {}, all.length > 1 ? el("b", {}, f.node) : null, facts(f)), chart(f))));
}
