// The entry point of a report: the page of one run, from the record in the same file.

import { el } from "./dom.js";
import { Frame } from "./frame.js";
import { help, listenKeys } from "./keys.js";
import { RunPage } from "./run.js";

const record = JSON.parse(document.getElementById("record").textContent);
const frame = new Frame({ home: null });
const page = new RunPage(record.run.run, { connection: () => {}, live: false, diffs: record.diffs, summary: record.summary });
page.show(record.run);
page.model.take(record.events);
document.body.replaceChildren(frame.node);
frame.show(page.node);
page.mount();
page.drawAll();
page.node.dataset.ready = String(page.model.events.length);
page.node.append(el("p", { class: "quiet foot" }, ...record.notes.map((note) => el("span", {}, note))));
listenKeys({ "?": help, t: () => frame.nextTheme() });
