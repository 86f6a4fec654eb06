"""An agent with a loop of its own, for the cases that run behind `guard`."""

import json
import os
import sys
import urllib.request

address = os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions"
tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
messages = [{"role": "user", "content": "Do it."}]
for turn in range(25):
    body = {"model": "m", "messages": messages, "max_tokens": 500, "tools": [tool]}
    headers = {"content-type": "application/json", "authorization": "Bearer k"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    try:
        message = json.load(urllib.request.urlopen(request, timeout=20))["choices"][0]["message"]
    except Exception:
        sys.exit(3)
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"res {turn}"})
