// The entry point of the dashboard: routing and the clock.

import { el, setText } from "./dom.js";
import { Frame } from "./frame.js";
import { help, listenKeys } from "./keys.js";
import { Overview } from "./overview.js";
import { RunPage } from "./run.js";
import * as api from "./api.js";

api.takeToken();
const frame = new Frame({ home: "#/" });
document.body.replaceChildren(frame.node);
let page = null;

function connection(state) {
  if (state?.refused) return askToken(state.refused);
  frame.connection(state);
}

function show(next) {
  page?.unmount?.();
  page = next;
  frame.show(next.node);
  next.mount?.();
}

function route() {
  // A link with a token was opened in an existing page.
  if (location.hash.includes("token=")) api.takeToken();
  const run = /^#\/run\/([\w-]+)$/.exec(location.hash)?.[1];
  document.title = "dogwatch";
  frame.connection(null);
  show(run ? new RunPage(run, { connection }) : new Overview({ connection }));
}

/** Asks for the token that `dogwatch serve` printed; the API requires it. */
function askToken(refusal) {
  const field = el("input", { type: "password", class: "field", autocomplete: "off", "aria-label": "Token", placeholder: "Token" });
  const form = el("form", { class: "empty-sea", on: { submit: (e) => { e.preventDefault(); api.keepToken(field.value.trim()); route(); } } },
    el("p", { class: "sentence" }, "Token required"),
    el("p", { class: "quiet" }, "Open the URL that ", el("code", {}, "dogwatch serve"), " printed, or paste the token here."),
    el("p", { class: "ask-token" }, field, el("button", { type: "submit", class: "button" }, "Continue")), el("p", { class: "quiet" }, refusal.message));
  frame.connection(null);
  show({ node: form });
  field.focus();
}

listenKeys({ "?": help, t: () => frame.nextTheme() });
addEventListener("hashchange", route);
addEventListener("offline", () => connection({ lost: true }));
setInterval(() => { if (!document.hidden) { frame.tick(); page?.tick?.(); } }, 1000);
setText(document.querySelector("title"), "dogwatch");
route();
