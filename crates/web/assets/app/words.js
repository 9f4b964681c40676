// Events and states in the words of the terminal screen.

import { oneLine } from "./text.js";
import { bytes, money, ordinal, plural, span } from "./time.js";

const WAITS = {
  asleep: "asleep", paused: "paused", rate_limit: "rate limited", idle: "idle", error: "after a failure", recovery: "before a recovery",
  backoff: "before the next attempt", delay: "between iterations",
};

export const wait = (why) => WAITS[why] ?? why ?? "waiting";

/** Endings of iterations: [tone, word] */
export const ENDINGS = {
  iteration_completed: ["good", "completed"], iteration_idle: ["calm", "idle"], iteration_failed: ["bad", "failed"],
  iteration_timed_out: ["bad", "timed out"], iteration_rate_limited: ["wait", "rate limited"],
  iteration_auth_failed: ["bad", "authentication failed"], iteration_interrupted: ["dim", "interrupted"],
};

const OUTCOMES = {
  clean: "good", clean_with_flake: "flake", idle: "calm", stopped: "dim", interrupted: "dim", partial: "bad", stuck: "bad",
  catastrophic: "bad", stopped_on_error: "bad", error_limit: "bad", auth_failed: "bad", budget_exceeded: "wait", ceiling: "wait",
  record_lost: "bad",
};

export const outcomeTone = (outcome) => OUTCOMES[outcome] ?? "dim";
export const outcomeWord = (outcome) => (outcome === "clean_with_flake" ? "clean, with a flake" : String(outcome ?? "?").replaceAll("_", " "));

const exit = (e) => (e.signal ? `signal ${e.signal}` : e.exit_code === null || e.exit_code === undefined ? "no exit code" : `exit code ${e.exit_code}`);

function tool(e) {
  switch (e.fact) {
    case "tool_started": return `${e.name || "a tool"} started`;
    case "tool_ended": return e.ok ? "a tool ended" : `a tool failed${e.error ? `: ${oneLine(e.error, 160)}` : ""}`;
    case "error": return `error: ${oneLine(e.fingerprint, 200)}`;
    case "subagent_started": return `subagent ${e.id} started`;
    case "subagent_ended": return `subagent ${e.id} ended`;
    case "sampled": return `${plural(e.children ?? 0, "child process").replace("processs", "processes")}, ${span((e.cpu_ms ?? 0) / 1000)} of CPU time`;
    case "suspended": return `suspended for ${span((e.for_ms ?? 0) / 1000)}`;
    default: return String(e.fact ?? "").replaceAll("_", " ");
  }
}

function attempt(e) {
  const failing = (e.results ?? []).filter((r) => r.rc !== 0);
  const ran = plural((e.results ?? []).length, "check");
  return e.converged ? `${ran} passed` : `${failing.length} of ${ran} failed: ${oneLine(failing.map((r) => r.cmd).join("; "), 160)}`;
}

const REPORTS = {
  state: "the agent says", progress: "progress", error: "the agent reports an error", artifact: "artifact saved", checks: "checks", server: "MCP server",
};

function report(e) {
  const share = e.bytes !== undefined ? ` (${bytes(e.bytes)})` : e.total !== undefined ? ` (${e.done ?? 0}/${e.total})` : "";
  return `${REPORTS[e.kind] ?? e.kind}: ${oneLine(e.text, 300)}${share}`;
}

const DESCRIPTIONS = {
  run_started: (e) => `run ${e.run} started: ${e.path ?? ""}`,
  run_resumed: () => "the run was resumed",
  node_transition: (e) => `${e.node}: ${e.from} \u2192 ${e.to}${e.reason ? ` (${e.reason})` : ""}`,
  iteration_started: (e) => `iteration ${e.iteration} started (${String(e.cause ?? "").replaceAll("_", " ")})`,
  command_finished: (e) => `command ${e.name}: ${e.timed_out ? "timed out" : exit(e)}, ${span(e.duration_s)}`,
  prompt_assembled: (e) => `prompt of ${bytes(e.bytes ?? 0)}`,
  session_started: (e) => `session started (pid ${e.pid}): ${oneLine((e.argv ?? []).join(" "), 160)}`,
  observed: (e) => `${e.channel}: ${plural(e.count ?? 1, "piece")} of progress`,
  fact: tool,
  used: (e) => `used so far: ${e.tokens ?? "?"} tokens, ${money(e.cost_usd)}`,
  watchdog_continue: (e) => `idle limit reached; deferred by activity on ${e.deferred_by}`,
  suspended: (e) => `the machine was suspended for ${span(e.for_s)}`,
  marker_seen: (e) => `the agent reported ${e.state}${(e.attrs ?? []).map(([k, v]) => ` ${k}=${v}`).join("")}`,
  hard_stop: (e) => `${e.reason}: ${oneLine(e.message, 300)}`,
  session_signalled: (e) => `${e.step} sent (${e.ended_by})`,
  session_ended: (e) => `session ended by ${e.ended_by}, ${exit(e)}, after ${span(e.duration_s)}${e.said ? `: ${oneLine(e.said, 200)}` : ""}`,
  snapshot_taken: (e) => `work tree saved as ${e.ref}`,
  iteration_idle: (e) => `iteration ${e.iteration} idle (${ordinal(e.consecutive ?? 1)} in a row, ${e.reason})${e.skipped ? ", the agent was not called" : ""}`,
  wait_started: (e) => `waiting (${wait(e.why)})${e.delay_s !== null && e.delay_s !== undefined ? ` for ${span(e.delay_s)}` : ""}`,
  run_slept: (e) => `${String(e.reason ?? "").replaceAll("_", " ")}; entering sleep mode after ${plural(e.consecutive ?? 0, "idle iteration")}`,
  wait_ended: (e) => `the wait ended (${e.by})`,
  wake_remembered: (e) => `woken (${e.by}) while working: the next wait ends at once`,
  paused: () => "paused",
  unpaused: () => "resumed",
  told: (e) => `operator message: ${oneLine(e.text, 300)}`,
  notice: (e) => `${e.kind}: ${oneLine(e.message, 300)}`,
  trouble: (e) => `${e.kind}: ${oneLine(e.detail, 300)}`,
  node_attempt: attempt,
  recovery_planned: (e) => `${String(e.action ?? "").replaceAll("_", " ")} after ${oneLine(e.because ?? e.class, 160)}${e.budget ? ` (${e.used} of ${e.budget})` : ""}`,
  needs_human: (e) => `needs human input: ${oneLine(e.what, 240)}`,
  needs_human_ended: (e) => `human input no longer needed (${String(e.by ?? "").replaceAll("_", " ")})`,
  agent_retrying: (e) => `the agent retries${e.status ? ` after ${e.status}` : ""}${e.delay_s ? `, in ${span(e.delay_s)}` : ""}`,
  agent_drifted: () => "most of the agent's lines have an unknown format; they count as plain output",
  worktree_ready: (e) => `separate work tree: ${e.path} (${e.branch})`,
  checks_pinned: (e) => `${plural((e.files ?? []).length, "file")} of the checks pinned`,
  checks_started: () => "checks started",
  check_tampered: (e) => `changed since the start: ${oneLine((e.files ?? []).join(", "), 200)} (${e.policy})`,
  notified: (e) => `notification ${e.ok ? "sent" : "failed"} (${e.how}): ${oneLine(e.key, 100)}${e.detail ? ` (${oneLine(e.detail, 120)})` : ""}`,
  agent_reported: report,
  partial_kept: (e) => `partial work saved: ${e.file}`,
  run_ended: (e) => `ended: ${outcomeWord(e.outcome)} (${oneLine(e.reason, 200)}), exit code ${e.exit_code}`,
};

/** Describes an event in one line. Unknown events of later versions are shown as JSON. */
export function describe(e) {
  if (DESCRIPTIONS[e.event]) return DESCRIPTIONS[e.event](e);
  if (ENDINGS[e.event]) return `iteration ${e.iteration} ${ENDINGS[e.event][1]}: ${oneLine(e.because, 300)}`;
  const { v, seq, at, awake_ms, boot_ms, event, prev, node, ...rest } = e;
  return oneLine(JSON.stringify(rest), 300);
}

const TONES = {
  hard_stop: "bad", trouble: "bad", watchdog_continue: "wait", notice: "wait", wait_started: "wait", told: "blue", marker_seen: "calm",
  paused: "wait", run_slept: "calm", recovery_planned: "wait", needs_human: "wait", agent_retrying: "wait", agent_drifted: "wait", check_tampered: "bad",
};

export function tone(e) {
  if (ENDINGS[e.event]) return ENDINGS[e.event][0];
  if (e.event === "run_ended") return outcomeTone(e.outcome);
  if (e.event === "node_attempt") return e.converged ? "good" : "bad";
  if (e.event === "fact" && (e.fact === "error" || (e.fact === "tool_ended" && !e.ok))) return "bad";
  return TONES[e.event] ?? "plain";
}
