// Keys that work everywhere on a page, and the page that tells them.

import { el, button } from "./dom.js";

const HELP = [
  ["Everywhere", [["?", "this page"], ["/", "search"], ["T", "light, dark or as the system has it"], ["Esc", "back to all runs"]]],
  ["All runs", [["\u2191 \u2193", "from run to run"], ["Enter", "open the run"], ["W", "wake it"], ["P", "pause it, or go on"], ["S", "stop it"]]],
  ["One run", [["W  P  S", "wake, pause, stop"], ["M", "tell the agent something"], ["F", "follow the present"], ["+  \u2212", "zoom"], ["\u2190 \u2192", "move the time axis"], ["0", "show all of it"], ["\u2191 \u2193", "on the axis: from verdict to verdict; in the log: from event to event"]]],
];

/** True while somebody types. */
const typing = (e) => e.target instanceof HTMLElement && (["INPUT", "TEXTAREA", "SELECT"].includes(e.target.tagName) || e.target.isContentEditable);

/** `acts` maps keys to what they do; answers how to stop listening. */
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
  const dialog = el("dialog", { class: "dialog help", "aria-label": "Keys", on: { cancel: close } },
    el("h2", {}, "Keys"), el("div", { class: "help-parts" }, HELP.map(part)),
    el("p", { class: "quiet" }, "On the time axis, Ctrl and the wheel zoom; drag to move; point at anything to see the evidence."),
    el("div", { class: "dialog-buttons" }, button("Close", close, { class: "button" })));
  document.body.append(dialog);
  dialog.showModal();
}
