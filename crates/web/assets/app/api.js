// The API client: requests and the event stream. A request is signed with the token in a header, which EventSource does
// not support. The token itself is never sent.

const KEY = "dogwatch.token";
/** The delay between reconnects; it doubles from the first to the last value. */
const RETRY_FIRST = 1000;
const RETRY_LAST = 20_000;
/** The server sends a keep-alive every 15 s. A stream that is silent for this long is dead. */
const SILENCE_LIMIT = 45_000;
/** A page that is hidden for this long closes its stream: browsers limit the connections of all pages together. */
const HIDDEN_LIMIT = 20_000;
/** The default timeout of a request. */
const REQUEST_TIMEOUT = 10_000;
/** A challenge signs requests for this long, and this many of them. The server accepts more of both. */
const CHALLENGE_LIMIT = 30_000;
const MAX_SIGNED = 1000;

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Moves the token from the address bar, where it would be visible and saved in the history, to the session. */
export function takeToken() {
  const match = /[#&]token=([^&]+)/.exec(location.hash);
  if (match) {
    sessionStorage.setItem(KEY, decodeURIComponent(match[1]));
    const rest = location.hash.slice(1).split("&").filter((part) => part !== "" && !part.startsWith("token=")).join("&");
    history.replaceState(null, "", location.pathname + (rest ? `#${rest}` : ""));
  }
  return sessionStorage.getItem(KEY);
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

const encoder = new TextEncoder();
const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
const mac = async (key, message) => hex(await crypto.subtle.sign("HMAC", key, encoder.encode(message)));
/** The challenge that signs requests that only read, shared by all of them. */
let shared = null;

/** Asks for a challenge. The server proves that it knows the token: a challenge of another process is not signed. */
async function ask(token) {
  const nonce = hex(crypto.getRandomValues(new Uint8Array(32)));
  const answer = await fetch(`/app/proof?nonce=${nonce}`, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
  const [proof, text] = answer.ok ? (await answer.text()).trim().split(" ") : [];
  const key = await crypto.subtle.importKey("raw", encoder.encode(token), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  if (text === undefined || proof !== await mac(key, `dogwatch server\n${nonce}\n${text}`)) {
    throw new Refused(401, "no_token", "the server does not know this token; open the URL that `dogwatch serve` printed");
  }
  return { key, text };
}

/** Returns a challenge and a number that no other request has. A request that changes something has its own challenge. */
async function challenge(token, alone) {
  if (alone) return { ...await ask(token), number: 0 };
  const now = performance.now();
  if (shared?.token !== token || now - shared.since > CHALLENGE_LIMIT || shared.signed >= MAX_SIGNED) {
    shared = { token, since: now, signed: 0, asked: ask(token) };
  }
  const mine = shared;
  const number = mine.signed++;
  try {
    return { ...await mine.asked, number };
  } catch (error) {
    if (shared === mine) shared = null;
    throw error;
  }
}

/** Returns the header that proves that the page knows the token, for this request only. */
async function proof(path, { method = "GET", body = "" }) {
  const token = sessionStorage.getItem(KEY);
  if (!token) return {};
  const { key, text, number } = await challenge(token, method !== "GET");
  const { pathname, search } = new URL(path, location.href);
  const hash = hex(await crypto.subtle.digest("SHA-256", encoder.encode(body)));
  const signature = await mac(key, `dogwatch request\n${method}\n${pathname}${search}\n${text}\n${number}\n${hash}`);
  return { Authorization: `Dogwatch-Proof ${text}.${number}.${hash}.${signature}` };
}

async function checked(response) {
  if (response.ok) return response;
  let refusal = {};
  try { refusal = (await response.json()).error ?? {}; } catch { /* not JSON: the status is enough */ }
  throw new Refused(response.status, refusal.code ?? "", refusal.message ?? `the server answered with status ${response.status}`);
}

async function request(path, options = {}) {
  try {
    return await send(path, options);
  } catch (error) {
    // After a loss, another process may have the port. A refused proof has had no effect, so the request is repeated once.
    if (!(error instanceof Refused) || error.code === "stale_proof") shared = null;
    if (error.code === "stale_proof") return send(path, options);
    throw error;
  }
}

async function send(path, { signal, timeout = REQUEST_TIMEOUT, ...rest }) {
  const headers = { ...rest.headers, ...await proof(path, rest) };
  const limits = [signal, timeout ? AbortSignal.timeout(timeout) : null].filter(Boolean);
  return checked(await fetch(path, { cache: "no-store", ...rest, headers, signal: AbortSignal.any(limits) }));
}

const runPath = (run) => `/v1/runs/${encodeURIComponent(run)}`;

export async function runs(signal) {
  return (await (await request("/v1/runs", { signal })).json()).runs;
}

/** Returns the other machines whose runs are shown, and what they share. */
export async function machines(signal) {
  return (await request("/v1/machines", { signal })).json();
}

/** Returns a run in the format of the list of runs. */
export async function run(id, signal) {
  const status = await (await request(runPath(id), { signal })).json();
  return { run: id, project: status.work_dir, path: status.path, alive: status.live, state: status.state, status };
}

/** Returns the output files of an iteration with their lengths. */
export async function outputs(id, node, iteration) {
  return (await (await request(`${runPath(id)}/output/${encodeURIComponent(node)}/${iteration}`)).json()).files;
}

export async function post(id, verb, body) {
  const json = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  await request(`${runPath(id)}/${verb}`, { method: "POST", ...json });
}

/** Returns a part of an iteration's output: bytes `from` to the end, or the last `last` bytes. */
export async function output(id, node, iteration, stream, { from, last, signal } = {}) {
  const range = from !== undefined ? `bytes=${from}-` : `bytes=-${last}`;
  const path = `${runPath(id)}/output/${encodeURIComponent(node)}/${iteration}/${stream}`;
  try {
    const answer = await request(path, { headers: { Range: range }, signal });
    const body = new Uint8Array(await answer.arrayBuffer());
    const match = /bytes (\d+)-(\d+)\/(\d+|\*)/.exec(answer.headers.get("content-range") ?? "");
    return { body, start: match ? Number(match[1]) : 0, size: match && match[3] !== "*" ? Number(match[3]) : body.length };
  } catch (error) {
    if (error instanceof Refused && error.status === 416) return { body: new Uint8Array(), start: from ?? 0, size: from ?? 0 };
    throw error;
  }
}

/** Returns the end of an iteration's output as lines for people: `{ from, size, lines: [{ tone, text }] }`. */
export async function readable(id, node, iteration, last) {
  const path = `${runPath(id)}/output/${encodeURIComponent(node)}/${iteration}/readable`;
  return (await request(path, { headers: { Range: `bytes=-${last}` } })).json();
}

/** Returns what an iteration changed. */
export async function diff(id, node, iteration) {
  return (await request(`${runPath(id)}/output/${encodeURIComponent(node)}/${iteration}/diff`)).text();
}

/** Calls `take` with complete lines as they arrive. */
async function eachLine(response, take, silence = 0) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const bound = silence ? setTimeout(() => reader.cancel().catch(() => {}), silence) : 0;
    const { done, value } = await reader.read();
    clearTimeout(bound);
    if (done) break;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    take(lines);
  }
  if (rest !== "") take([rest]);
}

function parsed(line) {
  try { return JSON.parse(line); } catch { return null; }
}

/** Reads the existing events in batches. */
export async function pastEvents(id, after, take, signal) {
  const answer = await request(`${runPath(id)}/events?after=${after}&observed=true&sentences=true`, { signal, timeout: 0 });
  await eachLine(answer, (lines) => take(lines.filter((line) => line !== "").map(parsed).filter(Boolean)));
}

/**
 * Follows the event stream until `signal` is aborted. `take` receives batches of events, `report` the state of the
 * connection: `live`, `{ lost }` or `{ refused }`. `over` returns whether the run has ended.
 */
export async function follow(id, { after, take, report, over, signal }) {
  let wait = RETRY_FIRST;
  while (!signal.aborted && !over()) {
    await untilVisible(signal);
    const visible = whileVisible(signal);
    try {
      const answer = await request(`${runPath(id)}/events?observed=true&sentences=true`, {
        headers: { Accept: "text/event-stream", "Last-Event-ID": String(after()) }, signal: visible.signal, timeout: 0,
      });
      report("live");
      wait = RETRY_FIRST;
      await eachLine(answer, (lines) => {
        const data = lines.filter((line) => line.startsWith("data:")).map((line) => parsed(line.slice(5)));
        if (data.length) take(data.filter(Boolean));
      }, SILENCE_LIMIT);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && [401, 403, 404].includes(error.status)) return report({ refused: error });
    } finally {
      visible.close();
    }
    if (signal.aborted || over()) return;
    if (visible.signal.aborted) continue;
    shared = null;
    report({ lost: true });
    await pause(wait, signal);
    wait = Math.min(wait * 2, RETRY_LAST);
  }
}

/** Waits until the page is visible. */
function untilVisible(signal) {
  if (!document.hidden) return null;
  return new Promise((resolve) => {
    const look = () => { if (!document.hidden || signal.aborted) { document.removeEventListener("visibilitychange", look); resolve(); } };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}

/** Returns a signal that is aborted with `signal`, or when the page has been hidden for a while. */
function whileVisible(signal) {
  const hidden = new AbortController();
  let timer = null;
  const look = () => { clearTimeout(timer); timer = document.hidden ? setTimeout(() => hidden.abort(), HIDDEN_LIMIT) : null; };
  document.addEventListener("visibilitychange", look);
  return { signal: AbortSignal.any([signal, hidden.signal]), close: () => { clearTimeout(timer); document.removeEventListener("visibilitychange", look); } };
}

/** Waits for `ms`, or until `signal` is aborted or the browser is online again. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => { clearTimeout(timer); removeEventListener("online", done); resolve(); };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal?.addEventListener("abort", done, { once: true });
  });
}
