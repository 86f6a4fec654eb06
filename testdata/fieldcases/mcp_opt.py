"""An MCP server over stdio with one tool, whose argument is optional."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {
    "name": "remove",
    "description": "Remove files; all of them unless a path is given.",
    "inputSchema": SCHEMA,
}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        removed = "removed: " + json.dumps(params.get("arguments"))
        return {"content": [{"type": "text", "text": removed}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message.get("method"), message.get("params"))
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "no"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
