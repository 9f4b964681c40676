#!/usr/bin/env python3
"""A scripted model for testing agent CLIs without an account: `model.py PLAY.json`.

Listens on loopback and prints `{"port": N}`, its only line on stdout. Runs until its stdin is closed, and for at most
LIFETIME. Writes every request to the `log` file of the play, one JSON object per line.

The play is a JSON object:

  answers     the answers of the conversation, one for each request; the last one is repeated
  delegated   the same for the conversation of a subagent, whose prompt contains DELEGATED
  look_for    texts; the log lists for each request which of them it contains
  log         a file

An answer is one of:

  {"say": TEXT, "calls": [CALL, …], "tokens": [READ, WRITTEN]}       all fields are optional
  {"refuse": STATUS, "text": TEXT, "retry_after": SECONDS}
  {"hang": "headers"}                         accept the request, send nothing
  {"hang": "stream"}                          start the stream, send no events
  {"hang": "midway", "say": TEXT}             stop in the middle of the text

A call is one of {"shell": COMMAND}, {"write": [PATH, CONTENT]}, {"mcp": [TOOL, ARGUMENTS]} (a tool of dogwatch's
server), {"delegate": PROMPT}, for Claude Code {"tool": [NAME, ARGUMENTS]}, and for Codex, which hides tools until a search, {"find_tools": QUERY} and
{"await": SECONDS} (until its subagent has finished). It is translated to a tool call of the CLI.
A request without tools (for a title or a summary) gets a short answer and is not part of the conversation.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import wire

# The longest wait in seconds.
LIFETIME = 900
MAX_BODY = 64 * 1024 * 1024
MAX_CONNECTIONS = 64
DELEGATED = "DELEGATED"


class Play:
    def __init__(self, text):
        self.script = json.loads(text)
        self.lock = threading.Lock()
        self.given = {"answers": 0, "delegated": 0}
        self.log_file = open(self.script["log"], "a", buffering=1) if "log" in self.script else None

    def next(self, asked):
        """Returns the conversation and the next answer."""
        if not asked.tools:
            return "aside", {"say": "Very well."}
        whose = "delegated" if any(DELEGATED in text for text in asked.texts) else "answers"
        with self.lock:
            answers = self.script.get(whose) or [{"say": "I have nothing to say."}]
            at = min(self.given[whose], len(answers) - 1)
            self.given[whose] += 1
        return whose, answers[at]

    def log(self, **fields):
        if self.log_file:
            with self.lock:
                self.log_file.write(json.dumps(fields) + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = LIFETIME

    def log_message(self, *_):
        pass

    def do_GET(self):
        """Answers requests for lists of models."""
        self.send_json(200, {"object": "list", "data": [], "models": []})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        raw = self.body()
        if raw is None:
            return
        path = self.path.split("?")[0]
        protocol = next((p for p in wire.PROTOCOLS if path.endswith(p.ending)), None)
        if protocol is None:
            return self.send_json(404, {"error": {"message": "not found"}})
        try:
            body = json.loads(raw)
        except ValueError:
            return self.send_json(400, {"error": {"message": "invalid JSON"}})
        self.answer(protocol, body, raw)

    def body(self):
        """Returns the request body; None if it is too long."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self.chunked()
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length <= MAX_BODY else self.too_long()

    def chunked(self):
        parts, total = [], 0
        while size := int(self.rfile.readline(64).split(b";")[0] or b"0", 16):
            total += size
            if total > MAX_BODY:
                return self.too_long()
            parts.append(self.rfile.read(size))
            self.rfile.readline(8)
        self.rfile.readline(8)
        return b"".join(parts)

    def too_long(self):
        self.close_connection = True
        self.send_json(413, {"error": {"message": f"a request has at most {MAX_BODY} bytes"}})

    def answer(self, protocol, body, raw):
        asked = protocol.asked(body)
        whose, answer = self.server.play.next(asked)
        sought = [text for text in self.server.play.script.get("look_for", []) if text in raw.decode(errors="replace")]
        self.server.play.log(
            at=time.time(), whose=whose, protocol=protocol.__name__, holds=sought, tools=asked.tools,
            gives=next(iter(answer), "nothing"),
        )
        if "refuse" in answer:
            return self.refuse(protocol, answer)
        if answer.get("hang") == "headers":
            return self.hang()
        speaker = protocol(body.get("model", "scripted"), answer.get("tokens", [1000, 50]))
        if protocol is not wire.Gemini and not body.get("stream"):
            return self.send_json(501, {"error": {"message": "this model only supports streaming"}})
        self.stream(speaker, asked, answer)

    def refuse(self, protocol, answer):
        status, after = answer["refuse"], answer.get("retry_after")
        headers = [] if after is None else [("retry-after", str(after))]
        text = answer.get("text", "the play says no")
        self.send_json(status, protocol.refusal(status, text, after), headers)

    def stream(self, speaker, asked, answer):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.pieces(speaker.begin())
        if "hang" in answer:
            if "say" in answer:
                self.pieces(speaker.part_of(answer["say"]))
            return self.hang()
        if "say" in answer:
            self.pieces(speaker.say(answer["say"]))
        for call in answer.get("calls", []):
            (kind, value), = call.items()
            self.pieces(speaker.use(speaker.call(kind, value, asked)))
        self.pieces(speaker.end())
        self.wfile.write(b"0\r\n\r\n")

    def pieces(self, pieces):
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def hang(self):
        """Waits until the client disconnects."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.recv(1)

    def send_json(self, status, value, headers=()):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, content in headers:
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(text)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    places = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request_thread(self, request, client_address):
        with self.places:
            super().process_request_thread(request, client_address)

    def handle_error(self, request, client_address):
        # Ignore broken connections of a killed CLI.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    server = Server(("127.0.0.1", 0), Handler)
    with open(sys.argv[1]) as file:
        server.play = Play(file.read())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    alarm = threading.Timer(LIFETIME, os._exit, [1])
    alarm.daemon = True
    alarm.start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
