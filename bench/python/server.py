"""Scripted LLM server on 127.0.0.1: the model's name is the script. Stdlib only.

OpenAI chat + responses, Anthropic messages, Gemini generateContent; streamed or not.
  stop length lengthtool filter refusal cut reset loop abab parallel budget empty unknown
  once (a tool, then an answer) ten (ten calls of a tool, then an answer) handoff
  city badcity cutcity limitcity (an object, in a call of a tool that is not echo, or in text) both (a tool and an object)
  denied (HTTP 400) slow
  do.LABEL.STEP.STEP…  one step for each request, the last one for the rest: the start of a tool's name is a
                       call of it, with arguments for its schema (after `wrong~` with other ones); `halt` a
                       call that the token limit cut; `json` an object with a city's name; `code` a program;
                       `slow` an answer after 30 s, or a stream of a word each 0.2 s; `drip` such a stream;
                       else a script of the above
  cached (an answer whose prompt is almost all of a cache)
Usage of each answer: 100 in, 50 out; of `cached` 1,000,000 in, of which 900,000 are of a cache.  GET /stats gives requests by model, GET /answered how many were
answered to the end, GET /reset clears.
"""

import asyncio
import json
import os
import re
import sys

PORT = int(os.environ.get("MOCK_PORT", "8099"))


class Tally:
    """What was asked and answered since the last reset. A response that is still being written then counts for
    the tally of its request."""

    def __init__(self):
        self.asked = {}
        self.answered = 0


TALLY = Tally()
TEXT = "The capital of France is Paris, and it has been so"
IN, OUT = 100, 50


def prompt_tokens(s):
    """The tokens of a prompt, and those of them that were read from a cache."""
    return (1_000_000, 900_000) if s == "cached" else (IN, 0)




def script(model):
    name = model.rsplit("/", 1)[-1]
    return name[2:] if name.startswith("m-") else name


CITY = '{"name": "Paris", "country": "France"}'


def city(s, tools, n):
    """An object: in a call if there is a tool for it. `cutcity` is cut, `badcity` has other fields, and
    after that of `limitcity` the token limit was reached."""
    tool = next((t for t, _ in tools if t and "echo" not in t), None)
    text = {"cutcity": CITY[:20], "badcity": '{"wrong": %d}' % n}.get(s, CITY)
    cut = "length" if s in ("cutcity", "limitcity") else None
    if tool is None:
        return text, [], cut or "stop", None
    return "", [(f"c{n}", tool, text)], cut or "tool_calls", None


def step(s, n):
    """The script of the n-th request of a plan."""
    if not s.startswith("do."):
        return s
    steps = s.split(".")[2:]
    return steps[min(n, len(steps)) - 1]


def filled(schema, root=None):
    """A value for a JSON schema."""
    root = root or schema
    if "$ref" in schema:
        return filled(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if one := schema.get("enum") or schema.get("examples"):
        return one[0]
    if one := schema.get("anyOf"):
        return filled(one[0], root)
    kind = str(schema.get("type", "object")).lower()
    if kind == "object":
        # A tool is called with what it requires, or with all if nothing is marked.
        known = schema.get("properties", {})
        needed = schema.get("required", known)
        return {k: filled(v, root) for k, v in known.items() if k in needed}
    return {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": []}[kind]


def planned(s, n, tools):
    """The n-th answer of a plan, if it is a call; `tools` is a list of (name, schema)."""
    name = step(s, n)
    if s == name:
        return None
    if name == "halt":
        return "", [(f"c{s}{n}", tools[0][0], '{"text": "hel')], "length", None
    wrong, _, name = name.rpartition("~")
    for tool, schema in tools:
        if tool.lower().startswith(name.lower()):
            arguments = '{"nothing": 1}' if wrong else json.dumps(filled(schema or {}))
            return "", [(f"c{s}{n}", tool, arguments)], "tool_calls", None
    return None


def turn(s, tool_results, n, toolname, tools=()):
    """(text, calls [(id,name,args_text)], finish, refusal)"""
    if one := planned(s, n, tools):
        return one
    s = step(s, n)
    if s in ("city", "badcity", "cutcity", "limitcity"):
        return city(s, tools, n)
    if s == "ten":
        if tool_results >= 10:
            return "All done.", [], "stop", None
        return "", [(f"c{n}", toolname, '{"text": "step %d"}' % n)], "tool_calls", None
    if s == "both":
        objects = [(f"o{n}", t, CITY) for t, _ in tools if t and "echo" not in t]
        return "", [(f"c{n}", toolname, '{"text": "x"}'), *objects], "tool_calls", None
    if s == "handoff":
        to = next((t for t, _ in tools if t and t.startswith("transfer")), None)
        return ("", [(f"c{n}", to, "{}")], "tool_calls", None) if to else (TEXT + ".", [], "stop", None)
    if s == "length":
        return TEXT, [], "length", None
    if s == "lengthtool":
        return "", [("c1", toolname, '{"text": "hel')], "length", None
    if s == "cuttool":
        return "", [("c1", toolname, '{"text": "hel')], None, None
    if s == "filter":
        return "The first half", [], "content_filter", None
    if s == "refusal":
        return "", [], "stop", "I cannot help with that."
    if s in ("cut", "reset"):
        return TEXT, [], None, None
    if s == "loop":
        return "", [(f"c{n}", toolname, '{"text": "same"}')], "tool_calls", None
    if s == "abab":
        return (
            "",
            [(f"c{n}", toolname, '{"text": "' + "ab"[tool_results % 2] + '"}')],
            "tool_calls",
            None,
        )
    if s == "budget":
        return "", [(f"c{n}", toolname, '{"text": "step %d"}' % n)], "tool_calls", None
    if s == "parallel":
        # Some frameworks send results of tools in messages of the user.
        if tool_results or n > 1:
            return "All done.", [], "stop", None
        two = [(f"c{n}{one}", toolname, '{"text": "%s"}' % one) for one in "ab"]
        return "", two, "tool_calls", None
    if s == "once":
        return (
            ("All done.", [], "stop", None)
            if tool_results
            else ("", [(f"c{n}", toolname, '{"text": "x"}')], "tool_calls", None)
        )
    if s == "empty":
        return "", [], "stop", None
    if s == "code":
        return "Thought: so.\n<code>\nfinal_answer('Paris')\n</code>", [], "stop", None
    if s == "json":
        return '{"name": "Paris"}', [], "stop", None
    if s == "unknown":
        return TEXT, [], "weird_reason", None
    return TEXT + ".", [], "stop", None


AF = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    None: None,
}
GF = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "tool_calls": "STOP",
    None: None,
}


def named_for(calls):
    """An agent as a tool has another name for its argument."""
    return [(c, f, a.replace('"text"', '"input"') if "agent" in f else a) for c, f, a in calls]


def sse(objs, named=False, done=True):
    out = []
    for o in objs:
        out.append((f"event: {o['type']}\n" if named else "") + "data: " + json.dumps(o) + "\n\n")
    if done:
        out.append("data: [DONE]\n\n")
    return out


def chat(req, s, n):
    msgs = req.get("messages", [])
    res = sum(m.get("role") == "tool" for m in msgs)
    functions = [t.get("function", t) for t in req.get("tools") or []]
    tools = [f.get("name") for f in functions]
    tool = next((t for t in tools if t and "echo" in t), tools[0] if tools else "echo")
    schemas = [(f.get("name", ""), f.get("parameters")) for f in functions]
    text, calls, fin, refusal = turn(s, res, n, tool, schemas)
    calls = named_for(calls)
    prompt = json.dumps(msgs)
    if "starting with the field `[[ ## next_thought" in prompt and not refusal and s != "empty":
        # DSPy's ReAct asks for a tool in text; a whole answer is its tool `finish`.
        name, args = ("echo", calls[0][2]) if calls else ("finish", "{}")
        text = (
            f"[[ ## next_thought ## ]]\n{text or 'Again.'}\n\n[[ ## next_tool_name ## ]]\n{name}\n\n"
            f"[[ ## next_tool_args ## ]]\n{args}"
        )
        calls, fin = [], "stop" if fin == "tool_calls" else fin
    elif text and "[[ ## " in prompt:
        text = "[[ ## reasoning ## ]]\nSo.\n\n[[ ## answer ## ]]\n" + text
    base = {"id": f"r{n}", "created": 1, "model": req["model"]}
    given, cached = prompt_tokens(s)
    usage = {
        "prompt_tokens": given,
        "completion_tokens": OUT,
        "total_tokens": given + OUT,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    tc = [
        {"index": i, "id": c, "type": "function", "function": {"name": f, "arguments": a}}
        for i, (c, f, a) in enumerate(calls)
    ]
    if not req.get("stream"):
        m = {"role": "assistant", "content": text or None, "refusal": refusal}
        if tc:
            m["tool_calls"] = [{k: v for k, v in t.items() if k != "index"} for t in tc]
        return json.dumps(
            {
                **base,
                "object": "chat.completion",
                "usage": usage,
                "choices": [{"index": 0, "message": m, "finish_reason": fin, "logprobs": None}],
            }
        )

    def ch(delta, fin=None):
        return {
            **base,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": fin}],
        }

    objs = [ch({"role": "assistant", "content": ""})] + [
        # With its line breaks, because DSPy's fields are lines.
        ch({"content": w})
        for w in re.findall(r"\S+\s*", text)
    ]
    if refusal:
        objs.append(ch({"refusal": refusal}))
    if tc:
        objs.append(ch({"tool_calls": tc}))
    if fin is None:
        return sse(objs, done=False)
    objs.append(ch({}, fin))
    if (req.get("stream_options") or {}).get("include_usage"):
        objs.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return sse(objs)


def responses(req, s, n):
    inp = req.get("input")
    res = (
        sum(isinstance(i, dict) and i.get("type") == "function_call_output" for i in inp)
        if isinstance(inp, list)
        else 0
    )
    tools = [t.get("name") for t in req.get("tools") or []]
    schemas = [(t.get("name") or "", t.get("parameters")) for t in req.get("tools") or []]
    text, calls, fin, refusal = turn(s, res, n, tools[0] if tools else "echo", schemas)
    calls = named_for(calls)
    status = {"length": "incomplete", "content_filter": "incomplete"}.get(fin, "completed")
    out = []
    if text or refusal or not calls:
        c = (
            {"type": "refusal", "refusal": refusal}
            if refusal
            else {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        )
        out.append(
            {
                "type": "message",
                "id": f"m{n}",
                "role": "assistant",
                "status": status,
                "content": [c],
            }
        )
    for cid, f, a in calls:
        out.append(
            {
                "type": "function_call",
                "id": f"f{n}",
                "call_id": cid,
                "name": f,
                "arguments": a,
                "status": status,
            }
        )
    det = {
        "length": {"reason": "max_output_tokens"},
        "content_filter": {"reason": "content_filter"},
    }.get(fin)
    r = {
        "id": f"resp{n}",
        "object": "response",
        "created_at": 1,
        "model": req["model"],
        "status": status,
        "error": None,
        "incomplete_details": det,
        "instructions": None,
        "metadata": {},
        "output": out,
        "parallel_tool_calls": True,
        "temperature": 1,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1,
        "usage": {
            "input_tokens": prompt_tokens(s)[0],
            "input_tokens_details": {"cached_tokens": prompt_tokens(s)[1]},
            "output_tokens": OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt_tokens(s)[0] + OUT,
        },
    }
    if not req.get("stream"):
        return json.dumps(r)
    k, ev = 0, []

    def e(t, **kw):
        nonlocal k
        k += 1
        ev.append({"type": t, "sequence_number": k, **kw})

    e("response.created", response={**r, "status": "in_progress", "output": []})
    for i, o in enumerate(out):
        e(
            "response.output_item.added",
            output_index=i,
            item={**o, **({"content": []} if o["type"] == "message" else {"arguments": ""})},
        )
        if o["type"] == "message":
            e(
                "response.content_part.added",
                item_id=o["id"],
                output_index=i,
                content_index=0,
                part={"type": "output_text", "text": "", "annotations": []},
            )
            for w in text.split():
                e(
                    "response.output_text.delta",
                    item_id=o["id"],
                    output_index=i,
                    content_index=0,
                    delta=w + " ",
                    logprobs=[],
                )
        if fin is None:
            return sse(ev, named=True, done=False)
        e("response.output_item.done", output_index=i, item=o)
    e("response." + ("incomplete" if status == "incomplete" else "completed"), response=r)
    return sse(ev, named=True, done=False)


def anthropic(req, s, n):
    res = sum(
        isinstance(b, dict) and b.get("type") == "tool_result"
        for m in req.get("messages", [])
        if isinstance(m.get("content"), list)
        for b in m["content"]
    )
    tools = [t.get("name") for t in req.get("tools") or []]
    tool = next((t for t in tools if t and "echo" in t), tools[0] if tools else "echo")
    schemas = [(t.get("name") or "", t.get("input_schema")) for t in req.get("tools") or []]
    text, calls, fin, refusal = turn(s, res, n, tool, schemas)
    stop = "refusal" if refusal else AF.get(fin, fin)
    blocks = [{"type": "text", "text": text or refusal}] if (text or refusal) else []
    for c, f, a in calls:
        try:
            a = json.loads(a)
        except ValueError:
            a = {}
        blocks.append({"type": "tool_use", "id": f"toolu_{c}", "name": f, "input": a})
    m = {
        "id": f"msg{n}",
        "type": "message",
        "role": "assistant",
        "model": req["model"],
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt_tokens(s)[0] - prompt_tokens(s)[1],
            "cache_read_input_tokens": prompt_tokens(s)[1],
            "output_tokens": OUT,
        },
    }
    if not req.get("stream"):
        return json.dumps(m)
    ev = [{"type": "message_start", "message": {**m, "content": [], "stop_reason": None}}]
    for i, b in enumerate(blocks):
        if b["type"] == "text":
            ev.append(
                {
                    "type": "content_block_start",
                    "index": i,
                    "content_block": {"type": "text", "text": ""},
                }
            )
            ev += [
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "text_delta", "text": w + " "},
                }
                for w in b["text"].split()
            ]
        else:
            ev.append(
                {"type": "content_block_start", "index": i, "content_block": {**b, "input": {}}}
            )
            ev.append(
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "input_json_delta", "partial_json": calls[0][2]},
                }
            )
        if fin is None:
            return sse(ev, named=True, done=False)
        ev.append({"type": "content_block_stop", "index": i})
    ev.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": OUT},
        }
    )
    ev.append({"type": "message_stop"})
    return sse(ev, named=True, done=False)


def gemini(req, s, n, stream):
    res = sum("functionResponse" in p for c in req.get("contents", []) for p in c.get("parts", []))
    declared = [f for t in req.get("tools") or [] for f in t.get("functionDeclarations", [])]
    decl = [f["name"] for f in declared]
    # The SDK sends this name as it is.
    names = ("parameters_json_schema", "parametersJsonSchema", "parameters")
    schemas = [(f["name"], next((f[one] for one in names if one in f), None)) for f in declared]
    text, calls, fin, refusal = turn(s, res, n, decl[0] if decl else "echo", schemas)
    if refusal:
        text, fin = refusal, "stop"
    parts = [{"text": text}] if text else []
    for _, f, a in calls:
        try:
            a = json.loads(a)
        except ValueError:
            a = {}
        parts.append({"functionCall": {"name": f, "args": a}})

    def chunk(ps, fin=None):
        c = {"index": 0, "content": {"role": "model", "parts": ps}}
        if fin:
            c["finishReason"] = GF.get(fin, fin)
        return {
            "candidates": [c],
            "modelVersion": "m",
            "usageMetadata": {
                "promptTokenCount": prompt_tokens(s)[0],
                "cachedContentTokenCount": prompt_tokens(s)[1],
                "candidatesTokenCount": OUT,
                "totalTokenCount": prompt_tokens(s)[0] + OUT,
            },
        }

    if not stream:
        return json.dumps(chunk(parts, fin))
    objs = [chunk([{"text": w + " "}]) for w in text.split()] + (
        [chunk([p for p in parts if "functionCall" in p])] if calls else []
    )
    if fin:
        objs.append(chunk([], fin))
    return sse(objs, done=False)


async def handle(r, w):
    global TALLY
    try:
        while True:
            line = await r.readline()
            if not line:
                break
            method, path, _ = line.decode().split(" ", 2)
            hdr = {}
            while (h := await r.readline()) not in (b"\r\n", b""):
                k, v = h.decode("latin1").split(":", 1)
                hdr[k.lower()] = v.strip()
            if hdr.get("transfer-encoding", "").lower() == "chunked":
                body = b""
                while size := int((await r.readline()).split(b";")[0], 16):
                    body += await r.readexactly(size)
                    await r.readline()
                await r.readline()
            else:
                body = await r.readexactly(int(hdr.get("content-length", 0)))
            path = path.split("?")[0]
            s = ""
            tally = TALLY
            if path in ("/stats", "/reset", "/answered"):
                out = json.dumps(TALLY.answered if path == "/answered" else TALLY.asked)
                if path == "/reset":
                    TALLY = Tally()
            elif method != "POST":
                out = "{}"
            else:
                req = json.loads(body or b"{}")
                g = re.search(r"/models/([^:]+):(\w+)", path)
                if g:
                    req["model"] = g.group(1)
                if path.endswith("count_tokens"):
                    out = '{"input_tokens": 100}'
                else:
                    model = str(req.get("model", ""))
                    s = script(model)
                    tally.asked[s] = n = tally.asked.get(s, 0) + 1
                    if os.environ.get("MOCK_LOG"):
                        print(n, path, s, len(body), file=sys.stderr, flush=True)
                    if step(s, n) == "slow" and not req.get("stream"):
                        await asyncio.sleep(30)
                    if s == "denied":
                        out = '{"error": {"message": "no such thing", "type": "invalid_request_error"}}'
                    elif g:
                        out = gemini(req, s, n, g.group(2).startswith("stream"))
                    elif path.endswith("/chat/completions"):
                        out = chat(req, s, n)
                    elif path.endswith("/responses"):
                        out = responses(req, s, n)
                    elif path.endswith("/messages"):
                        out = anthropic(req, s, n)
                    else:
                        out = "{}"
                if isinstance(out, list):
                    w.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nx-request-id: q\r\n\r\n"
                    )
                    for o in out:
                        b = o.encode()
                        w.write(b"%x\r\n%s\r\n" % (len(b), b))
                        if step(s, n) in ("slow", "drip"):
                            await w.drain()
                            await asyncio.sleep(0.2)
                    await w.drain()
                    tally.answered += 1
                    if s == "reset":
                        w.transport.abort()
                        return
                    w.write(b"0\r\n\r\n")
                    await w.drain()
                    continue
            b = out.encode()
            w.write(
                b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nx-request-id: q\r\n\r\n%s"
                % (b"400 Bad Request" if s == "denied" else b"200 OK", len(b), b)
            )
            await w.drain()
            tally.answered += bool(s) and s != "denied"
    except (ConnectionError, asyncio.IncompleteReadError, ValueError) as e:
        if os.environ.get("MOCK_LOG"):
            print("conn", repr(e), file=sys.stderr)
    finally:
        w.close()


async def main():
    async with await asyncio.start_server(handle, "127.0.0.1", PORT) as srv:
        await srv.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
