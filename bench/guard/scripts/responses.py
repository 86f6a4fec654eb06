"""A tool loop on Responses; with CHAIN=1 each request continues the response before it."""
import json
import os

from openai import OpenAI

import tool

client = OpenAI()
tools = [{"type": "function", "name": "bash", "parameters": tool.SCHEMA}]
items = [{"role": "user", "content": os.environ["TASK"]}]
chain = {}
for turn in range(100):
    with client.responses.stream(model="gpt-5.1", input=items, tools=tools, **chain) as stream:
        for _ in stream:
            pass
        response = stream.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    print("turn", turn, response.status, len(calls), repr(response.output_text[:120]), flush=True)
    if not calls:
        break
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": tool.run(json.loads(call.arguments)["command"])}
               for call in calls]
    if os.environ.get("CHAIN") == "1":
        chain, items = {"previous_response_id": response.id}, results
    else:
        items = items + [item.model_dump(exclude_none=True) for item in response.output] + results
