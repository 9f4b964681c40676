// Keyboard shortcuts, and the dialog that lists them.

import { el, button } from "./dom.js";

const HELP = [
  ["Everywhere", [["?", "show this help"], ["/", "search"], ["T", "change the theme: auto, light, dark"], ["Esc", "back to all runs"]]],
  ["All runs", [["\u2191 \u2193", "select a run"], ["Enter", "open the run"], ["W", "wake the run"], ["P", "pause or resume the run"], ["S", "stop the run"]]],
  ["One run", [["W  P  S", "wake, pause, stop"], ["M", "send a message to the agent"], ["F", "follow new events"], ["+  \u2212", "zoom"], ["\u2190 \u2192", "move the time axis"], ["0", "show the whole run"], ["\u2191 \u2193", "on the axis: next or previous verdict; in the log: next or previous event"]]],
];

/** Returns whether the user is typing into a field. */
const typing = (e) => e.target instanceof HTMLElement && (["INPUT", "TEXTAREA", "SELECT"].includes(e.target.tagName) || e.target.isContentEditable);

/** Listens for keys; `acts` maps keys to actions. Returns a function that stops listening. */
export function listenKeys(acts) {
  const hear = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (typing(e)) { if (e.key === "Escape") e.target.blur(); return; }
    const act = acts[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (act) { e.preventDefault(); act(e); }
  };
  document.addEventListener("keydown", hear);
  return () => document.removeEventListener("keydown", hear);
}

export function help() {
  const close = () => { dialog.close(); dialog.remove(); };
  const part = ([title, rows]) => el("section", {}, el("h3", {}, title),
    el("dl", {}, rows.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])));
  const dialog = el("dialog", { class: "dialog help", "aria-label": "Keyboard shortcuts", on: { cancel: close } },
    el("h2", {}, "Keyboard shortcuts"), el("div", { class: "help-parts" }, HELP.map(part)),
    el("p", { class: "quiet" }, "On the time axis: Ctrl and the mouse wheel zoom, dragging moves the axis, and hovering shows the evidence."),
    el("div", { class: "dialog-buttons" }, button("Close", close, { class: "button" })));
  document.body.append(dialog);
  dialog.showModal();
}
