// Creates elements. Strings always become text.

import { printable } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : printable(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : printable(child))));
  return node;
}

export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Sets a text only if it differs, so that the user's selection is kept. */
export function setText(node, text) {
  const fit = printable(text);
  if (node.textContent !== fit) node.textContent = fit;
}

/** Replaces all children. */
export function put(node, ...children) {
  node.replaceChildren();
  return fill(node, null, children);
}

/** Creates a button, optionally with its key. */
export function button(label, act, props = {}) {
  const { key, ...rest } = props;
  const keycap = key ? el("kbd", { "aria-hidden": "true" }, key) : null;
  return el("button", { type: "button", on: { click: act }, "aria-keyshortcuts": key, ...rest }, el("span", {}, label), keycap);
}

/** Shows a message for a few seconds, also to screen readers. */
export function toast(text, kind = "plain") {
  let shelf = document.querySelector(".toasts");
  if (!shelf) {
    shelf = el("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(shelf);
  }
  while (shelf.childElementCount > 3) shelf.firstElementChild.remove();
  const note = el("p", { class: `toast ${kind}` }, text);
  shelf.append(note);
  setTimeout(() => note.remove(), 6000);
}

/** Asks for confirmation. */
export function ask(title, text, yes) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const go = button(yes, () => close(true), { class: "button danger" });
    const dialog = el("dialog", { class: "dialog", "aria-label": title, on: { cancel: () => close(false) } },
      el("h2", {}, title), el("p", {}, text),
      el("div", { class: "dialog-buttons" }, button("Cancel", () => close(false), { class: "button" }), go));
    document.body.append(dialog);
    dialog.showModal();
    go.focus();
  });
}
