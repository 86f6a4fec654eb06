"""Reads responses with the Python SDKs of OpenAI and Anthropic, as their documentation does.

    read.py < jobs.jsonl > seen.jsonl

A job is {"key", "family", "way", "base", "retries", "request"}; `way` is `create` (not streamed),
`iterate` (`create(stream=True)`, the events one by one) or `helper` (`stream()` and its final
object). `retries` null keeps the SDK's default. The result is the data that a user of the SDK has at
the end: see `Seen`.
"""
import json
import sys

import anthropic
import openai


class Seen:
    """The result of reading a response, up to the end or to an error."""

    def __init__(self):
        self.value = None  # the field with the finish reason
        self.detail = None  # a further field with details
        self.text = ""
        self.refusal = ""
        self.arguments = []  # arguments of each tool call: a JSON string, or the object
        self.events = []  # error events of the stream

    def line(self, key, exception):
        def parses(arguments):
            if not isinstance(arguments, str):
                return True
            try:
                json.loads(arguments)
                return True
            except ValueError:
                return False

        # The class of the exception is what a user catches; messages are truncated.
        return json.dumps({
            "key": key,
            "exception": type(exception).__name__ if exception else None,
            "message": " ".join(str(exception).split())[:160] if exception else None,
            "value": self.value, "detail": self.detail,
            "text": len(self.text), "refusal": len(self.refusal),
            "calls": len(self.arguments), "parse": sum(map(parses, self.arguments)),
            "events": self.events,
        })


def chat_message(seen, completion):
    # The SDK returns a body without choices unchanged.
    if not completion.choices:
        return
    choice = completion.choices[0]
    seen.value = choice.finish_reason
    message = choice.message
    if message is None:
        return
    seen.text = message.content or ""
    seen.refusal = message.refusal or ""
    seen.arguments = [call.function.arguments for call in message.tool_calls or []]


def chat(client, job, seen):
    completions = client.chat.completions
    if job["way"] == "create":
        chat_message(seen, completions.create(**job["request"]))
    elif job["way"] == "helper":
        with completions.stream(**job["request"]) as stream:
            chat_message(seen, stream.get_final_completion())
    else:
        calls = {}
        for chunk in completions.create(**job["request"], stream=True):
            for choice in chunk.choices:
                seen.value = choice.finish_reason or seen.value
                delta = choice.delta
                seen.text += delta.content or ""
                seen.refusal += delta.refusal or ""
                for call in delta.tool_calls or []:
                    calls.setdefault(call.index, []).append(call.function.arguments or "")
                seen.arguments = ["".join(pieces) for pieces in calls.values()]


def response(seen, whole):
    seen.value = whole.status
    seen.detail = whole.incomplete_details and whole.incomplete_details.reason
    if whole.error:
        seen.detail = whole.error.code
    seen.text = whole.output_text
    for item in whole.output:
        if item.type == "function_call":
            seen.arguments.append(item.arguments)
        for part in (item.content or []) if item.type == "message" else []:
            if part.type == "refusal":
                seen.refusal += part.refusal


def responses(client, job, seen):
    if job["way"] == "create":
        response(seen, client.responses.create(**job["request"]))
    elif job["way"] == "helper":
        with client.responses.stream(**job["request"]) as stream:
            response(seen, stream.get_final_response())
    else:
        for event in client.responses.create(**job["request"], stream=True):
            if event.type == "response.output_text.delta":
                seen.text += event.delta
            elif event.type == "response.refusal.delta":
                seen.refusal += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                seen.arguments.append(event.item.arguments)
            elif event.type == "error":
                seen.events.append(event.type)
            elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                last = Seen()
                response(last, event.response)
                seen.value, seen.detail = last.value, last.detail


def message(seen, whole):
    seen.value = whole.stop_reason
    for block in whole.content:
        if block.type == "text":
            seen.text += block.text
        elif block.type == "tool_use":
            seen.arguments.append(block.input)


def messages(client, job, seen):
    request = {"max_tokens": 1024, **job["request"]}
    if job["way"] == "create":
        message(seen, client.messages.create(**request))
    elif job["way"] == "helper":
        with client.messages.stream(**request) as stream:
            message(seen, stream.get_final_message())
    else:
        calls = {}
        for event in client.messages.create(**request, stream=True):
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                calls[event.index] = ""
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                seen.text += event.delta.text
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                if event.index in calls:
                    calls[event.index] += event.delta.partial_json
            elif event.type == "message_delta":
                seen.value = event.delta.stop_reason or seen.value
            seen.arguments = [text or "{}" for text in calls.values()]


READERS = {
    "openai-chat": (openai.OpenAI, chat, "/v1"),
    "openai-responses": (openai.OpenAI, responses, "/v1"),
    "anthropic": (anthropic.Anthropic, messages, ""),
}


def main():
    for line in sys.stdin:
        job = json.loads(line)
        client, read, path = READERS[job["family"]]
        options = {} if job["retries"] is None else {"max_retries": job["retries"]}
        seen, failed = Seen(), None
        try:
            read(client(api_key="none", base_url=job["base"] + path, timeout=30, **options), job, seen)
        except Exception as exception:
            failed = exception
        print(seen.line(job["key"], failed), flush=True)


if __name__ == "__main__":
    main()
