"""The protocols between the four agent CLIs and their models: parsing requests and writing answers.

One class per protocol. `asked` parses a request; an object of the class turns one answer into the parts of an event
stream. The classes also map the calls of a play to the CLI's own tools, because only they know the offered tools.
"""

import json
import uuid


def fresh(kind):
    return f"{kind}_{uuid.uuid4().hex}"


def event(data, name=None):
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class Asked:
    """A parsed request: the user's texts, and the names of the offered tools."""

    def __init__(self, texts, tools):
        self.texts = texts
        self.tools = tools


def texts_of(content, kinds):
    """Returns the texts of a message, whose content is a text or a list of parts."""
    if isinstance(content, str):
        return [content]
    return [part.get("text", "") for part in content or [] if part.get("type") in kinds]


class Anthropic:
    """POST /v1/messages, of Claude Code."""

    ending = "/messages"

    @staticmethod
    def asked(body):
        users = [m for m in body.get("messages", []) if m.get("role") == "user"]
        texts = [text for m in users for text in texts_of(m.get("content"), ("text",))]
        return Asked(texts, [tool.get("name") for tool in body.get("tools", [])])

    @staticmethod
    def call(kind, value, asked):
        if kind == "shell":
            return {"name": "Bash", "args": {"command": value, "description": "a step of the play"}}
        if kind == "write":
            return {"name": "Write", "args": {"file_path": value[0], "content": value[1]}}
        if kind == "mcp":
            return {"name": f"mcp__dogwatch__{value[0]}", "args": value[1]}
        if kind == "tool":
            return {"name": value[0], "args": value[1]}
        name = "Agent" if "Agent" in asked.tools else "Task"
        args = {"description": "a piece of it", "prompt": value, "subagent_type": "general-purpose"}
        return {"name": name, "args": args}

    def __init__(self, model, tokens):
        self.model, self.tokens, self.index, self.calls = model, tokens, 0, 0

    def usage(self, output):
        zero = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return {"input_tokens": self.tokens[0], "output_tokens": output, **zero}

    def begin(self):
        message = {"id": fresh("msg"), "type": "message", "role": "assistant", "model": self.model, "content": []}
        message.update(stop_reason=None, stop_sequence=None, usage=self.usage(1))
        yield event({"type": "message_start", "message": message}, "message_start")

    def block(self, start, delta):
        at = {"index": self.index}
        self.index += 1
        yield event({"type": "content_block_start", **at, "content_block": start}, "content_block_start")
        yield event({"type": "content_block_delta", **at, "delta": delta}, "content_block_delta")
        yield event({"type": "content_block_stop", **at}, "content_block_stop")

    def say(self, text):
        yield from self.block({"type": "text", "text": ""}, {"type": "text_delta", "text": text})

    def part_of(self, text):
        """Returns the beginning of a text that is never finished."""
        start = {"type": "content_block_start", "index": self.index, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "text_delta", "text": text}
        yield event(start, "content_block_start")
        yield event({"type": "content_block_delta", "index": self.index, "delta": delta}, "content_block_delta")

    def use(self, call):
        self.calls += 1
        start = {"type": "tool_use", "id": fresh("toolu"), "name": call["name"], "input": {}}
        yield from self.block(start, {"type": "input_json_delta", "partial_json": json.dumps(call["args"])})

    def end(self):
        delta = {"stop_reason": "tool_use" if self.calls else "end_turn", "stop_sequence": None}
        usage = self.usage(self.tokens[1])
        yield event({"type": "message_delta", "delta": delta, "usage": usage}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")

    @staticmethod
    def refusal(status, text, retry_after):
        kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": text}}


class Responses:
    """POST /v1/responses, of Codex."""

    ending = "/responses"

    @staticmethod
    def asked(body):
        items = body.get("input", [])
        users = [item for item in items if isinstance(item, dict) and item.get("role") == "user"]
        texts = [text for item in users for text in texts_of(item.get("content"), ("input_text",))]
        asked = Asked(texts, [])
        asked.spaces = {}
        # Tools found by a search are listed in the items, not in the tools of the request.
        found = [tool for item in items if isinstance(item, dict) for tool in item.get("tools") or []]
        for tool in body.get("tools", []) + found:
            Responses.note(asked, tool)
        asked.agents = [id for item in items for id in Responses.agents_in(item)]
        return asked

    @staticmethod
    def note(asked, tool):
        name = tool.get("name") or tool.get("type")
        asked.tools.append(name)
        for inner in tool.get("tools") or []:
            asked.tools.append(inner.get("name"))
            asked.spaces[inner.get("name")] = name

    @staticmethod
    def agents_in(item):
        """Returns the subagents that were started so far."""
        if not isinstance(item, dict) or item.get("type") != "function_call_output":
            return []
        try:
            answer = json.loads(item.get("output"))
        except (TypeError, ValueError):
            return []
        id = answer.get("agent_id") if isinstance(answer, dict) else None
        return [id] if id else []

    @staticmethod
    def call(kind, value, asked):
        def named(name, args):
            space = asked.spaces.get(name)
            return {"name": name, "args": args, **({"namespace": space} if space else {})}

        if kind == "shell":
            return named("exec_command", {"cmd": value, "yield_time_ms": 30_000})
        if kind == "write":
            lines = "".join(f"+{line}\n" for line in value[1].splitlines())
            patch = f"*** Begin Patch\n*** Add File: {value[0]}\n{lines}*** End Patch"
            return {"name": "apply_patch", "input": patch}
        if kind == "mcp":
            # The tool is either in a namespace, or its name contains the namespace.
            whole = f"mcp__dogwatch__{value[0]}"
            return named(whole if whole in asked.tools else value[0], value[1])
        if kind == "find_tools":
            return {"name": "tool_search", "search": {"query": value, "limit": 8}}
        if kind == "await":
            return named("wait_agent", {"targets": asked.agents[-1:], "timeout_ms": value * 1000})
        return named("spawn_agent", {"message": value})

    def __init__(self, model, tokens):
        self.id, self.model, self.tokens, self.items, self.sequence = fresh("resp"), model, tokens, [], 0

    def event(self, kind, **fields):
        self.sequence += 1
        return event({"type": kind, "sequence_number": self.sequence, **fields}, kind)

    def response(self, status, usage=None):
        fields = {"object": "response", "created_at": 0, "model": self.model, "error": None}
        return {"id": self.id, **fields, "status": status, "output": list(self.items), "usage": usage}

    def begin(self):
        yield self.event("response.created", response=self.response("in_progress"))

    def item(self, item, deltas=()):
        at = {"output_index": len(self.items)}
        yield self.event("response.output_item.added", **at, item={**item, "status": "in_progress"})
        yield from deltas
        self.items.append({**item, "status": "completed"})
        yield self.event("response.output_item.done", **at, item=self.items[-1])

    def say(self, text):
        message = {"id": fresh("msg"), "type": "message", "role": "assistant"}
        at = {"item_id": message["id"], "output_index": len(self.items), "content_index": 0}
        message["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        yield from self.item(message, [self.event("response.output_text.delta", **at, delta=text)])

    def part_of(self, text):
        message = {"id": fresh("msg"), "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
        at = {"item_id": message["id"], "output_index": 0, "content_index": 0}
        yield self.event("response.output_item.added", output_index=0, item=message)
        yield self.event("response.output_text.delta", **at, delta=text)

    def use(self, call):
        item = {"id": fresh("fc"), "call_id": fresh("call"), "name": call["name"]}
        if "input" in call:
            yield from self.item({"type": "custom_tool_call", **item, "input": call["input"]})
        elif "search" in call:
            del item["name"]
            yield from self.item({"type": "tool_search_call", **item, "execution": "client", "arguments": call["search"]})
        else:
            space = {"namespace": call["namespace"]} if "namespace" in call else {}
            yield from self.item({"type": "function_call", **item, **space, "arguments": json.dumps(call["args"])})

    def end(self):
        read, written = self.tokens
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        usage.update(input_tokens_details={"cached_tokens": 0}, output_tokens_details={"reasoning_tokens": 0})
        yield self.event("response.completed", response=self.response("completed", usage))

    @staticmethod
    def refusal(status, text, retry_after):
        return openai_refusal(status, text)


def openai_refusal(status, text):
    kinds = {401: "invalid_request_error", 429: "rate_limit_exceeded"}
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    return {"error": {"message": text, "type": kinds.get(status, "server_error"), "code": codes.get(status), "param": None}}


class Chat:
    """POST /v1/chat/completions, of opencode."""

    ending = "/chat/completions"

    @staticmethod
    def asked(body):
        users = [m for m in body.get("messages", []) if m.get("role") == "user"]
        texts = [text for m in users for text in texts_of(m.get("content"), ("text",))]
        return Asked(texts, [tool.get("function", {}).get("name") for tool in body.get("tools") or []])

    @staticmethod
    def call(kind, value, asked):
        if kind == "shell":
            return {"name": "bash", "args": {"command": value, "description": "a step of the play"}}
        if kind == "write":
            return {"name": "write", "args": {"filePath": value[0], "content": value[1]}}
        if kind == "mcp":
            return {"name": f"dogwatch_{value[0]}", "args": value[1]}
        args = {"description": "a piece of it", "prompt": value, "subagent_type": "general"}
        return {"name": "task", "args": args}

    def __init__(self, model, tokens):
        self.id, self.model, self.tokens, self.calls = fresh("chatcmpl"), model, tokens, 0

    def chunk(self, delta, finish=None, **more):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        fields = {"object": "chat.completion.chunk", "created": 0, "model": self.model}
        return event({"id": self.id, **fields, "choices": choices, **more})

    def begin(self):
        yield self.chunk({"role": "assistant", "content": ""})

    def say(self, text):
        yield self.chunk({"content": text})

    part_of = say

    def use(self, call):
        function = {"name": call["name"], "arguments": json.dumps(call["args"])}
        made = {"index": self.calls, "id": fresh("call"), "type": "function", "function": function}
        self.calls += 1
        yield self.chunk({"tool_calls": [made]})

    def end(self):
        read, written = self.tokens
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        yield self.chunk({}, finish="tool_calls" if self.calls else "stop")
        yield self.chunk(None, usage=usage)
        yield b"data: [DONE]\n\n"

    @staticmethod
    def refusal(status, text, retry_after):
        return openai_refusal(status, text)


class Gemini:
    """POST /v1beta/models/MODEL:streamGenerateContent, of Gemini CLI."""

    ending = ":streamGenerateContent"

    @staticmethod
    def asked(body):
        users = [c for c in body.get("contents", []) if c.get("role") == "user"]
        texts = [part["text"] for c in users for part in c.get("parts", []) if "text" in part]
        declared = [d for tool in body.get("tools") or [] for d in tool.get("functionDeclarations") or []]
        return Asked(texts, [d.get("name") for d in declared])

    @staticmethod
    def call(kind, value, asked):
        if kind == "shell":
            return {"name": "run_shell_command", "args": {"command": value, "description": "a step of the play"}}
        if kind == "write":
            return {"name": "write_file", "args": {"file_path": value[0], "content": value[1]}}
        if kind == "mcp":
            return {"name": f"mcp_dogwatch_{value[0]}", "args": value[1]}
        return {"name": "invoke_agent", "args": {"agent_name": "generalist", "prompt": value}}

    def __init__(self, model, tokens):
        self.model, self.tokens = model, tokens

    def chunk(self, parts, finish=None):
        read, written = self.tokens
        usage = {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written}
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish:
            candidate["finishReason"] = finish
        return event({"candidates": [candidate], "usageMetadata": usage, "modelVersion": self.model})

    def begin(self):
        return iter(())

    def say(self, text):
        yield self.chunk([{"text": text}])

    part_of = say

    def use(self, call):
        yield self.chunk([{"functionCall": {"name": call["name"], "args": call["args"]}}])

    def end(self):
        yield self.chunk([{"text": ""}], finish="STOP")

    @staticmethod
    def refusal(status, text, retry_after):
        names = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 529: "UNAVAILABLE"}
        details = []
        if retry_after is not None:
            info = "type.googleapis.com/google.rpc.RetryInfo"
            details.append({"@type": info, "retryDelay": f"{retry_after}s"})
        return {"error": {"code": status, "message": text, "status": names.get(status, "UNKNOWN"), "details": details}}


PROTOCOLS = (Anthropic, Responses, Chat, Gemini)
