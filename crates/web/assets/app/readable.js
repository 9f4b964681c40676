// Makes the JSON output of agents readable. Unknown lines are shown unchanged.

import { clip } from "./text.js";

const MAX_ARGS = 200;

/** Summarizes the arguments of a tool in one line: the most informative argument. */
function args(input) {
  if (input === null || typeof input !== "object") return String(input ?? "");
  const said = input.command ?? input.file_path ?? input.path ?? input.pattern ?? input.prompt ?? input.description ?? input.query ?? input.url;
  const text = Array.isArray(said) ? said.join(" ") : typeof said === "string" ? said : JSON.stringify(input);
  return clip(text.replaceAll("\n", " "), MAX_ARGS);
}

const textOf = (content) => (typeof content === "string" ? content : Array.isArray(content) ? content.map((part) => part?.text ?? "").join("\n") : "");

function block(part) {
  switch (part?.type) {
    case "text": return [["said", part.text]];
    case "thinking": return [["thought", part.thinking]];
    case "tool_use": return [["tool", `${part.name} ${args(part.input)}`]];
    case "tool_result": return [[part.is_error ? "failed" : "result", textOf(part.content)]];
    default: return [];
  }
}

/** Claude Code's stream. */
function claude(e) {
  if (e.type === "assistant" || e.type === "user") return (Array.isArray(e.message?.content) ? e.message.content : [{ type: "text", text: e.message?.content }]).flatMap(block);
  if (e.type === "result") return [[e.is_error ? "failed" : "end", textOf(e.result) || e.subtype]];
  if (e.type === "system") return [["note", e.subtype === "init" ? `session started, ${e.model ?? ""}` : e.subtype]];
  return null;
}

/** Codex: items that start and complete. */
function codex(e) {
  const item = e.item;
  if (!item || !String(e.type).startsWith("item.")) return /^(thread|turn)\./.test(e.type ?? "") ? [["note", e.error?.message ?? e.type]] : null;
  if (e.type !== "item.completed") return [];
  if (item.type === "agent_message") return [["said", item.text]];
  if (item.type === "reasoning") return [["thought", item.text]];
  if (item.type === "command_execution") return [["tool", item.command], [item.exit_code === 0 ? "result" : "failed", item.aggregated_output]];
  return [["note", `${item.type} ${args(item)}`]];
}

/** opencode: parts of a message. */
function opencode(e) {
  const part = e.part;
  if (!part) return null;
  if (part.type === "text") return [["said", part.text]];
  if (part.type === "tool") return [["tool", `${part.tool} ${args(part.state?.input)}`], ["result", part.state?.output ?? part.state?.error ?? ""]];
  return [];
}

/** Gemini CLI. */
function gemini(e) {
  if (e.type === "message") return [[e.role === "user" ? "note" : "said", textOf(e.content)]];
  if (e.type === "tool_use") return [["tool", `${e.tool_name} ${args(e.parameters)}`]];
  if (e.type === "tool_result") return [[e.status === "error" ? "failed" : "result", textOf(e.output)]];
  if (e.type === "init") return [["note", `session started, ${e.model ?? ""}`]];
  return null;
}

/** Returns a line as [kind, text] pairs; null if the format is unknown. */
export function readable(line) {
  if (!line.startsWith("{")) return null;
  let e;
  try { e = JSON.parse(line); } catch { return null; }
  const found = (e.part ? opencode(e) : e.item || /^(thread|turn|item)\./.test(e.type ?? "") ? codex(e) : e.tool_name || e.type === "message" || (e.type === "init" && !e.message) ? gemini(e) : claude(e));
  return found?.map(([kind, text]) => [kind, String(text ?? "")]).filter(([, text]) => text.trim() !== "") ?? null;
}
