"""A tool loop on the Gemini API, streamed."""
import os

from google import genai
from google.genai import types

import tool

client = genai.Client()
declared = types.FunctionDeclaration(name="bash", description="run", parameters_json_schema=tool.SCHEMA)
config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
contents = [types.Content(role="user", parts=[types.Part(text=os.environ["TASK"])])]
for turn in range(100):
    parts, reason = [], None
    for chunk in client.models.generate_content_stream(model="gemini-2.5-pro", contents=contents, config=config):
        for candidate in chunk.candidates or []:
            parts += (candidate.content.parts or []) if candidate.content else []
            reason = candidate.finish_reason or reason
    calls = [part.function_call for part in parts if part.function_call]
    print("turn", turn, reason, len(calls), [part.text for part in parts if part.text], flush=True)
    if not calls:
        break
    contents.append(types.Content(role="model", parts=parts))
    contents.append(types.Content(role="user", parts=[
        types.Part.from_function_response(name=call.name, response={"out": tool.run(call.args["command"])}) for call in calls]))
