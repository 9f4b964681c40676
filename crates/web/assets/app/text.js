// Sanitizes untrusted text like the terminal screen does: removes escape sequences, and replaces control characters
// and invisible formatting characters with a replacement character.

const ESCAPES = /\u001b(?:\[[ -?]*[@-~]?|[\]PX^_][^\u0007\u001b\u009c\n]*(?:\u0007|\u009c|\u001b\\?)?|[ -/]*[0-~]?)|\u009b[ -?]*[@-~]?|\r/g;
const UNFIT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
const EVERY_UNFIT = new RegExp(UNFIT, "g");

export function printable(value) {
  const text = typeof value === "string" ? value : String(value ?? "");
  return UNFIT.test(text) ? text.replace(ESCAPES, "").replace(EVERY_UNFIT, "\ufffd") : text;
}

/** Truncates a text to `max` characters without splitting a surrogate pair. */
export function clip(text, max) {
  if (text.length <= max) return text;
  const half = text.charCodeAt(max - 1) >> 10 === 0x36;
  return text.slice(0, half ? max - 1 : max) + "\u2026";
}

export function oneLine(value, max) {
  const line = printable(value).split("\n").map((part) => part.trim()).find((part) => part !== "") ?? "";
  return clip(line, max);
}
