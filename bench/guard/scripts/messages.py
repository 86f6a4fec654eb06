"""A tool loop on Messages, streamed."""
import os

from anthropic import Anthropic

import tool

client = Anthropic()
tools = [{"name": "bash", "input_schema": tool.SCHEMA}]
messages = [{"role": "user", "content": os.environ["TASK"]}]
for turn in range(100):
    with client.messages.stream(model="claude-sonnet-4-5", max_tokens=1000, messages=messages, tools=tools) as stream:
        reply = stream.get_final_message()
    calls = [block for block in reply.content if block.type == "tool_use"]
    print("turn", turn, reply.stop_reason, len(calls), [block.text for block in reply.content if block.type == "text"], flush=True)
    if not calls:
        break
    messages.append({"role": "assistant", "content": [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in reply.content]})
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call.id, "content": tool.run(call.input["command"])} for call in calls]})
