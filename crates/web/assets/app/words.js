// The words for states, equal to those of the terminal (a test compares them). Events come with their sentences.

import { oneLine } from "./text.js";

const WAITS = {
  asleep: "asleep", paused: "paused", rate_limit: "rate limited", idle: "idle", error: "after an error", recovery: "before recovery",
  backoff: "before the next attempt", delay: "between iterations",
};

export const wait = (why) => WAITS[why] ?? why ?? "waiting";

/** Endings of iterations: [tone, word] */
export const ENDINGS = {
  iteration_completed: ["good", "completed"], iteration_idle: ["calm", "idle"], iteration_failed: ["bad", "failed"],
  iteration_timed_out: ["bad", "timed out"], iteration_rate_limited: ["wait", "rate limited"],
  iteration_auth_failed: ["bad", "not logged in"], iteration_interrupted: ["dim", "interrupted"],
};

const OUTCOMES = {
  clean: "good", clean_with_flake: "flake", idle: "calm", stopped: "dim", interrupted: "dim", partial: "bad", stuck: "bad",
  catastrophic: "bad", stopped_on_error: "bad", error_limit: "bad", auth_failed: "bad", budget_exceeded: "wait", ceiling: "wait",
  record_lost: "bad",
};

export const outcomeTone = (outcome) => OUTCOMES[outcome] ?? "dim";
export const outcomeWord = (outcome) => (outcome === "clean_with_flake" ? "clean, with a flake" : String(outcome ?? "?").replaceAll("_", " "));

/**
 * Returns an event in words. The sentence comes with the event. The frequent `observed` events have none, and events of
 * later versions are shown as JSON.
 */
export function describe(e) {
  if (e.sentence !== undefined) return e.sentence;
  if (e.event === "observed") return `${e.channel} \u00d7 ${e.count ?? 1}`;
  const { v, seq, at, awake_ms, boot_ms, event, prev, node, ms, ...rest } = e;
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
