#!/usr/bin/env python3
"""An MCP server in the user's own settings of an agent CLI. It must stay available when dogwatch adds its server.

Uses JSON-RPC, one message per line, on stdin and stdout, and exits when stdin is closed. It has one tool, `own_note`.
"""

import json
import sys

TOOL = {
    "name": "own_note",
    "description": "Saves a note for the user.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(method, params):
    if method == "initialize":
        about = {"name": "mine", "version": "1"}
        return {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "noted"}]}
    return {} if method == "ping" else None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
