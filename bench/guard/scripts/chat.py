"""A tool loop on Chat Completions, streamed."""
import json
import os

from openai import OpenAI

import tool

client = OpenAI()
messages = [{"role": "user", "content": os.environ["TASK"]}]
tools = [{"type": "function", "function": {"name": "bash", "parameters": tool.SCHEMA}}]
# Without the option a stream reports no usage.
options = {"stream_options": {"include_usage": True}} if os.environ.get("NO_USAGE") != "1" else {}
finish = None
for turn in range(100):
    text, calls = "", {}
    for chunk in client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools, stream=True, **options):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
                call["arguments"] += part.function.arguments or ""
    print("turn", turn, finish, len(calls), repr(text[:120]), flush=True)
    message = {"role": "assistant", "content": text}
    if not calls:
        break
    message["tool_calls"] = [{"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
                             for call in calls.values()]
    messages.append(message)
    for call in calls.values():
        output = tool.run(json.loads(call["arguments"])["command"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
