// The frame of every page: name, clock, connection state and theme.

import { el, button, put, setText } from "./dom.js";
import { shortClock, span } from "./time.js";
import { help } from "./keys.js";

const THEME = "dogwatch.theme";
const THEMES = ["auto", "light", "dark"];

function stored() {
  try { return localStorage.getItem(THEME) ?? "auto"; } catch { return "auto"; }
}

export function applyTheme(theme = stored()) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export class Frame {
  constructor({ home }) {
    applyTheme();
    this.clock = el("time", { class: "clock" });
    this.link = el("span", { class: "link-state", role: "status" });
    this.theme = button("", () => this.nextTheme(), { class: "button small quiet-button", "aria-label": "Change theme", title: "Change theme (T)" });
    this.main = el("main", { id: "main", tabindex: "-1" });
    const brand = el(home ? "a" : "span", { class: "brand", href: home, "aria-label": "dogwatch: all runs" }, el("span", { class: "dial", "aria-hidden": "true" }), "dogwatch");
    this.node = el("div", { class: "frame" },
      el("a", { class: "unseen skip", href: "#main", on: { click: (e) => { e.preventDefault(); this.main.focus(); } } }, "Skip to content"),
      el("header", { class: "top" }, brand, this.clock, this.link,
        el("span", { class: "grow" }), this.theme, button("?", help, { class: "button small quiet-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)" })),
      this.main);
    this.showTheme();
    this.tick();
  }

  nextTheme() {
    const next = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
    try { localStorage.setItem(THEME, next); } catch { /* the theme is not saved */ }
    applyTheme(next);
    this.showTheme();
    dispatchEvent(new Event("dogwatch:theme"));
  }

  showTheme() {
    const theme = stored();
    setText(this.theme.firstChild, { auto: "auto", light: "light", dark: "dark" }[theme]);
  }

  tick() {
    const now = Date.now();
    setText(this.clock, shortClock(now));
    if (this.lost) this.showLost();
  }

  /** Shows whether the page is up to date. */
  connection(state) {
    this.lost = state !== "live" && state !== null ? state : null;
    if (state === "live" || state === null) {
      this.since = null;
      this.link.className = `link-state ${state ?? ""}`;
      put(this.link, state === "live" ? "live" : "");
    } else {
      this.since ??= Date.now();
      this.link.className = "link-state lost";
      this.showLost();
    }
    document.body.classList.toggle("stale", this.lost !== null);
  }

  showLost() {
    const ago = span(Math.round((Date.now() - this.since) / 1000));
    setText(this.link, `disconnected for ${ago}; reconnecting`);
  }

  show(page) {
    put(this.main, page);
  }
}
