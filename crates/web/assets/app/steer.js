// Controls a run: wake, pause, resume, stop and send a message.

import { ask, toast } from "./dom.js";
import * as api from "./api.js";

const DONE = {
  wake: "The current or next wait ends now.", pause: "The run pauses after the current iteration.",
  resume: "The run continues.", stop: "The run stops after the current iteration.", tell: "The message is sent with the next prompt.",
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
export const pauseOrResume = (run) => send(run.run, run.status?.paused || run.status?.stopping ? "resume" : "pause");
export const tell = (run, text) => send(run.run, "tell", { text });

export async function stop(run) {
  const sure = await ask(`Stop ${run.name}?`, "The run stops after the current iteration. You can continue it with `dogwatch resume`.", "Stop");
  return sure ? send(run.run, "stop") : false;
}
