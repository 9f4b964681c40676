// Waking, pausing, stopping, telling: what can be asked of a run from a page.

import { ask, toast } from "./dom.js";
import * as api from "./api.js";

const DONE = {
  wake: "Woken: the wait ends now, or the next one does.", pause: "Paused: no iteration begins until somebody goes on.",
  resume: "It goes on.", stop: "It will stop after this iteration.", tell: "Told: it goes into the next prompt.",
};

async function send(run, verb, body) {
  try {
    await api.post(run, verb, body);
    toast(DONE[verb], "good");
    return true;
  } catch (error) {
    toast(`${verb}: ${error.message}`, "bad");
    return false;
  }
}

export const canSteer = (run) => run.alive && run.state !== "ended";

/** Whether there is a wait to end. */
export const wakeable = (run) => run.state === "waiting" || run.state === "asleep";

export const wake = (run) => send(run.run, "wake");
export const pauseOrResume = (run) => send(run.run, run.status?.paused ? "resume" : "pause");
export const tell = (run, text) => send(run.run, "tell", { text });

export async function stop(run) {
  const sure = await ask(`Stop ${run.name}?`, "What works now is let finish; then the run ends. It can be taken up again with `dogwatch resume`.", "Stop it");
  return sure ? send(run.run, "stop") : false;
}
