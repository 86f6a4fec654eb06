"""The four wire formats of the provider: reading histories, writing answers.

A plan has `text`, `calls` of (id, name, arguments), `id`, `model`, `input`, `cached` and `cut`.
"""
import json

CUT = '{"command": "touch cut-cal'
CREATED = 1_700_000_000


def of_path(path):
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    return "gemini" if path.lower().endswith("generatecontent") else None


def history(name, body):
    """Returns the number of tool results, the tools with their schemas, and the last prompt."""
    results, prompt = READ[name](body)
    earlier = body.get("previous_response_id")
    if earlier:
        # Only what is new is sent; the id names the turn before it.
        results += int(earlier.rsplit("_", 1)[-1])
    return {"results": results, "prompt": prompt, "tools": tools(name, body)}


def read_anthropic(body):
    results, prompt = 0, ""
    for message in body.get("messages", []):
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        for part in parts:
            results += part.get("type") == "tool_result"
            if part.get("type") == "text" and message["role"] == "user":
                prompt = part["text"]
    return results, prompt


def read_chat(body):
    results, prompt = 0, ""
    for message in body.get("messages", []):
        results += message["role"] == "tool"
        if message["role"] == "user":
            prompt = json.dumps(message["content"])
    return results, prompt


def read_responses(body):
    items = body.get("input") or []
    if isinstance(items, str):
        return 0, items
    users = [json.dumps(item.get("content")) for item in items if item.get("role") == "user"]
    results = sum(item.get("type", "").endswith("call_output") for item in items)
    return results, users[-1] if users else ""


def read_gemini(body):
    results, prompt = 0, ""
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            results += "functionResponse" in part
            if "text" in part and content.get("role") == "user":
                prompt = part["text"]
    return results, prompt


READ = {"anthropic": read_anthropic, "chat": read_chat, "responses": read_responses, "gemini": read_gemini}


def tools(name, body):
    found = {}
    for tool in body.get("tools") or []:
        if name == "anthropic":
            found[tool["name"]] = tool.get("input_schema", {})
        elif name == "chat":
            # Copilot CLI offers a tool of the type `custom` as well.
            own = tool.get("function") or tool["custom"]
            found[own["name"]] = own.get("parameters", {})
        elif name == "gemini":
            for one in tool.get("functionDeclarations", []):
                found[one["name"]] = one.get("parameters") or one.get("parametersJsonSchema") or {}
        elif tool.get("type") == "namespace":
            for one in tool.get("tools", []):
                found[f"{tool['name']}\x1f{one['name']}"] = one.get("parameters", {})
        else:
            found[tool.get("name") or tool["type"]] = tool.get("parameters", {})
    return found


def other(body):
    """The answer to a call without tools: a title, or an object if one is asked for."""
    config = body.get("generationConfig") or {}
    if config.get("responseMimeType") == "application/json" or config.get("responseJsonSchema"):
        return json.dumps({"complexity_reasoning": "x", "complexity_score": 50, "reasoning": "x",
                           "model_choice": "pro", "next_speaker": "user"})
    wants = body.get("response_format") or body.get("output_config") or (body.get("text") or {}).get("format")
    return '{"title": "A test", "isNewTopic": true}' if wants else "A test"


def pieces(text, size=24):
    return [text[at:at + size] for at in range(0, len(text), size)] or [""]


def sse(data, event=None):
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def arguments(plan, call):
    return pieces(CUT) if plan["cut"] else pieces(json.dumps(call[2]))


# Anthropic Messages

def anthropic_message(plan):
    content = [{"type": "text", "text": plan["text"]}] if plan["text"] else []
    content += [{"type": "tool_use", "id": f"toolu_{call}", "name": name, "input": given} for call, name, given in plan["calls"]]
    stop = {"length": "max_tokens", "stop": "end_turn"}.get(plan["cut"], "tool_use" if plan["calls"] else "end_turn")
    written, read = plan["cached"]
    usage = {"input_tokens": plan["input"], "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
             "output_tokens": 20}
    return {"id": f"msg_{plan['id']}", "type": "message", "role": "assistant", "model": plan["model"], "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": usage}


def anthropic_events(plan, _body, _sse):
    message = anthropic_message(plan)
    start = dict(message, content=[], stop_reason=None, usage=dict(message["usage"], output_tokens=1))
    yield "message_start", {"message": start}
    yield "ping", {}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            yield "content_block_start", {"index": index, "content_block": dict(block, input={})}
            call = (block["id"], block["name"], block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments(plan, call)]
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": ended, "usage": {"output_tokens": 20}}
    yield "message_stop", {}


# OpenAI Chat Completions

def chat_reply(plan):
    message = {"role": "assistant", "content": plan["text"] or None}
    if plan["calls"]:
        message["tool_calls"] = [{"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                                 for call, name, given in plan["calls"]]
    usage = {"prompt_tokens": plan["input"], "completion_tokens": 20, "total_tokens": plan["input"] + 20}
    finish = plan["cut"] or ("tool_calls" if plan["calls"] else "stop")
    return {"id": f"chatcmpl-{plan['id']}", "object": "chat.completion", "created": CREATED, "model": plan["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def chat_events(plan, body, _sse):
    whole_reply = chat_reply(plan)
    base = {key: whole_reply[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta, finish=None):
        return sse(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(plan["text"]) if plan["text"] else []:
        yield chunk({"content": piece})
    for index, call in enumerate(plan["calls"]):
        head = {"id": call[0], "type": "function", "function": {"name": call[1], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index} | head]})
        for piece in arguments(plan, call):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, whole_reply["choices"][0]["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield sse(base | {"choices": [], "usage": whole_reply["usage"]})
    yield b"data: [DONE]\n\n"


# OpenAI Responses

def responses_reply(plan):
    output = []
    if plan["text"]:
        part = {"type": "output_text", "text": plan["text"], "annotations": []}
        output.append({"type": "message", "id": f"msg_{plan['id']}", "role": "assistant", "status": "completed", "content": [part]})
    for call, name, given in plan["calls"]:
        item = {"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": name, "arguments": json.dumps(given),
                "status": "completed"}
        if "\x1f" in name:
            item["namespace"], item["name"] = name.split("\x1f")
        output.append(item)
    usage = {"input_tokens": plan["input"], "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": plan["input"] + 20}
    # The turn is in the id, so that a request that continues it can be placed.
    return {"id": f"resp_{plan['id']}_{plan['turn']}", "object": "response", "created_at": CREATED, "status": "completed",
            "model": plan["model"], "output": output, "error": None, "incomplete_details": None, "instructions": None,
            "metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": 1.0,
            "top_p": 1.0, "usage": usage}


def responses_events(plan, _body, _sse):
    reply = responses_reply(plan)
    early = dict(reply, status="in_progress", output=[], usage=None)
    yield "response.created", {"response": early}
    yield "response.in_progress", {"response": early}
    for index, item in enumerate(reply["output"]):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            part = item["content"][0]
            yield "response.output_item.added", {"output_index": index, "item": dict(item, status="in_progress", content=[])}
            yield "response.content_part.added", at | {"content_index": 0, "part": dict(part, text="")}
            for piece in pieces(part["text"]):
                yield "response.output_text.delta", at | {"content_index": 0, "delta": piece, "logprobs": []}
            yield "response.output_text.done", at | {"content_index": 0, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", at | {"content_index": 0, "part": part}
        else:
            yield "response.output_item.added", {"output_index": index, "item": dict(item, status="in_progress", arguments="")}
            for piece in pieces(item["arguments"]):
                yield "response.function_call_arguments.delta", at | {"delta": piece}
            yield "response.function_call_arguments.done", at | {"arguments": item["arguments"], "name": item["name"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": reply}


# Gemini

def gemini_reply(plan):
    parts = [{"text": plan["text"]}] if plan["text"] else []
    parts += [{"functionCall": {"name": name, "args": given}} for _, name, given in plan["calls"]]
    usage = {"promptTokenCount": plan["input"], "candidatesTokenCount": 20, "totalTokenCount": plan["input"] + 20}
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": plan["model"], "responseId": plan["id"]}


def whole(name, plan):
    make = {"anthropic": anthropic_message, "chat": chat_reply, "responses": responses_reply, "gemini": gemini_reply}
    return make[name](plan)


def events(name, plan, body, is_sse):
    if name == "chat":
        return list(chat_events(plan, body, is_sse))
    if name == "gemini":
        reply = gemini_reply(plan)
        if not is_sse:
            return [json.dumps([reply]).encode()]
        empty = dict(reply, candidates=[{"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}}])
        return [sse(empty), sse(reply)]
    make = {"anthropic": anthropic_events, "responses": responses_events}[name]
    made = []
    for number, (kind, data) in enumerate(make(plan, body, is_sse)):
        extra = {"sequence_number": number} if name == "responses" else {}
        made.append(sse({"type": kind} | extra | data, kind))
    return made
