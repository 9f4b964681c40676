#!/usr/bin/env python3
"""An MCP server as a user may have one in the settings of an agent CLI: it must stay, whatever dogwatch adds.

JSON-RPC, a message a line, on stdin and stdout; ends with its stdin. One tool, `own_note`.
"""

import json
import sys

TOOL = {
    "name": "own_note",
    "description": "Keeps a note of the user's own.",
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
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not known here"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
