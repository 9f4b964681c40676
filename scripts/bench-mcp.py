"""The agent and the proxied server for scripts/bench: `bench-mcp.py ROLE`, with BIN and RESULT set.

Uses only the standard library, pipes and JSON, so that the client adds little to the measured time.
"""

import json
import os
import subprocess
import sys
import threading
import time

CALLS = 400
CLIENTS, EACH, PACE = 20, 50, 0.02


class Wire:
    """An MCP client over two pipes."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", hello)
        self.put({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def put(self, message):
        self.process.stdin.write((json.dumps(message) + "\n").encode())
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.put({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.number and not answer.get("error"), answer
        return answer["result"]

    def call(self, tool, **arguments):
        begun = time.perf_counter()
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), result
        return (time.perf_counter() - begun) * 1000


def bridge():
    return Wire([os.environ["BIN"], "mcp"])


def serve():
    """A server with one tool."""
    tool = {"name": "echo", "description": "says it again", "inputSchema": {"type": "object"}}
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}},
                      "serverInfo": {"name": "echo", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [tool]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        else:
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


def calls():
    """Calls dogwatch's tool, and the tool of another server directly and through the proxy, alternately."""
    through, straight = bridge(), Wire([sys.executable, __file__, "serve"])
    through.ask("tools/list", {})
    took = {"progress": [], "straight": [], "proxied": []}
    for n in range(CALLS):
        took["progress"].append(through.call("report_progress", message="step " + "x" * (n % 97) + f" of file a{n}b"))
        took["straight"].append(straight.call("echo", text=f"{n}"))
        took["proxied"].append(through.call("echo", text=f"{n}"))
    return took


def many():
    """Twenty clients that each send fifty heartbeats per second until the watchdog stops them."""
    clients = [bridge() for _ in range(CLIENTS)]
    made = [0] * CLIENTS

    def speak(at):
        due = time.perf_counter() + at * PACE / CLIENTS
        while True:
            time.sleep(max(0, due - time.perf_counter()))
            clients[at].call("heartbeat")
            made[at] += 1
            due += PACE

    for at in range(CLIENTS):
        threading.Thread(target=speak, args=(at,), daemon=True).start()
    begun = time.perf_counter()
    while True:
        time.sleep(0.25)
        with open(os.environ["RESULT"], "a") as file:
            file.write(json.dumps({"calls": sum(made), "s": time.perf_counter() - begun}) + "\n")


def idle():
    """A client that is initialized and then idle."""
    client = bridge()
    client.ask("tools/list", {})
    client.call("heartbeat")
    write_result(client.process.pid)
    time.sleep(600)


def write_result(what):
    path = os.environ["RESULT"]
    with open(path + ".new", "w") as file:
        json.dump(what, file)
    os.rename(path + ".new", path)


role = sys.argv[1]
if role == "serve":
    serve()
else:
    sys.stdin.read()
    {"calls": lambda: write_result(calls()), "many": many, "idle": idle}[role]()
