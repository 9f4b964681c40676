"""An agent that calls `dogwatch mcp` with the Python SDK of MCP, which shares no code with dogwatch's server.

It writes the results as one JSON object to the file named by RESULT. The test checks them.
"""

import json
import os
import sys

import anyio
from mcp import Client, ClientSession, StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

SERVER = StdioServerParameters(command=os.environ["BIN"], args=["mcp"], env=dict(os.environ))
# A generous limit in seconds, even on a busy machine.
TIMEOUT = 60


async def outcome(call):
    """Return the outcome of a call: a text, an error of the tool, or an error of the protocol."""
    try:
        result = await call
    except MCPError as error:
        return {"refused": error.error.message, "code": error.error.code}
    text = "\n".join(block.text for block in result.content)
    return {"error": text} if result.is_error else {"text": text}


async def handshake(seen):
    """Use the protocol with `initialize`, and call every tool with valid and invalid arguments."""
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        seen["hello"] = {"name": hello.server_info.name, "protocol": hello.protocol_version}
        seen["instructions"] = hello.instructions
        listed = (await session.list_tools()).tools
        seen["tools"] = {tool.name: tool.input_schema for tool in listed}
        with open(os.environ["CALLS"]) as file:
            calls = json.load(file)
        seen["answers"] = []
        for tool, arguments in calls:
            answer = await outcome(session.call_tool(tool, arguments, read_timeout_seconds=TIMEOUT))
            seen["answers"].append([tool, answer])
        steps = []

        async def progress(done, total, message):
            steps.append([done, total, message])

        answer = await outcome(session.call_tool("progress", {}, TIMEOUT, progress_callback=progress))
        with anyio.move_on_after(TIMEOUT):
            while not steps:
                await anyio.sleep(0.01)
        seen["progress"] = [answer, steps]


async def negotiated(seen):
    """Use the high-level client, which asks for the newest protocol first."""
    async with Client(SERVER, read_timeout_seconds=TIMEOUT) as client:
        tools = (await client.list_tools()).tools
        seen["negotiated"] = {
            "protocol": client.protocol_version,
            "tools": [tool.name for tool in tools],
            "answer": await outcome(client.call_tool("report_progress", {"message": "once more"})),
            "proxied": await outcome(client.call_tool("echo", {"text": "through"})),
        }


async def main():
    seen = {}
    try:
        with anyio.fail_after(TIMEOUT):
            await handshake(seen)
            await negotiated(seen)
    finally:
        with open(os.environ["RESULT"], "w") as file:
            json.dump(seen, file)


sys.stdin.read()
anyio.run(main)
