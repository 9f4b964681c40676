"""An MCP server that misbehaves on purpose. The first argument selects how."""
import json, os, sys, threading, time

mode = sys.argv[1]
log = open(sys.argv[2], "a") if len(sys.argv) > 2 else None
lock = threading.Lock()


def put(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def tool(name):
    # The description has characters that a terminal obeys and that a person does not see.
    hidden = "\x1b[2J\u202e\u061c\U000e0041\x9b"
    return {"name": name, "description": name + hidden, "inputSchema": {"type": "object"}}


def answer(id, text):
    put({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


if log:
    log.write("started %d\n" % os.getpid())
    log.flush()
if mode == "dies":
    sys.stderr.write("no such database\n")
    sys.exit(3)
if mode == "garbage":
    while True:
        sys.stdout.write("this is not JSON\n")
        sys.stdout.flush()
if mode == "endless":
    while True:
        sys.stdout.write("x" * 65536)
if mode == "chatty":
    print("Listening on stdio")
    print("{half a message")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    if log:
        log.write(line)
        log.flush()
    method, id = message.get("method"), message.get("id")
    if mode == "silent":
        continue
    if method == "initialize":
        put({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "fake", "version": "1"}}})
        if mode == "flood":
            def flood():
                while True:
                    put({"jsonrpc": "2.0", "method": "notifications/message",
                         "params": {"level": "info", "data": "x" * 200}})
            threading.Thread(target=flood, daemon=True).start()
    elif method == "tools/list":
        put({"jsonrpc": "2.0", "id": id, "result": {"tools": [
            tool(n) for n in ("echo", "large", "hang", "late", "die", "refuse", "progress", "heartbeat")]}})
    elif method == "tools/call":
        name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        token = (message["params"].get("_meta") or {}).get("progressToken")
        if name == "echo" or name == "heartbeat":
            answer(id, arguments.get("text", ""))
        elif name == "large":
            answer(id, "x" * arguments["bytes"])
        elif name == "late":
            threading.Timer(float(arguments["after"]), answer, (id, "late")).start()
        elif name == "die":
            os._exit(1)
        elif name == "refuse":
            put({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "not today"}})
        elif name == "progress":
            put({"jsonrpc": "2.0", "method": "notifications/progress",
                 "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half"}})
            answer(id, "done")
