"""Measures how long the Python SDKs take to read recorded streams from memory.

    decode.py < formats.json    # {format: {"family": …, "bodies": [text, …]}}

Prints, for each format and way of reading, the seconds of each pass over its streams. The time is
the processor time of the thread, because other work on the machine must not count. There is no
socket: the HTTP client of the SDK gets a transport that answers from memory, each body in one chunk.
"""
import json
import sys
import time

import anthropic
import httpx2
import openai

WARM, LONG = 1.0, 3.0  # seconds of warm-up passes, and of measured passes
FEWEST = 3  # least number of measured passes, however long they take
CHAT = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


def chat(client, way):
    if way == "helper":
        with client.chat.completions.stream(**CHAT) as stream:
            return stream.get_final_completion()
    for _ in client.chat.completions.create(**CHAT, stream=True):
        pass


def responses(client, way):
    request = {"model": "m", "input": "go"}
    if way == "helper":
        with client.responses.stream(**request) as stream:
            return stream.get_final_response()
    for _ in client.responses.create(**request, stream=True):
        pass


def messages(client, way):
    request = {**CHAT, "max_tokens": 1}
    if way == "helper":
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()
    for _ in client.messages.create(**request, stream=True):
        pass


READERS = {
    "openai-chat": (openai.OpenAI, chat),
    "openai-responses": (openai.OpenAI, responses),
    "anthropic": (anthropic.Anthropic, messages),
}


class Memory:
    """A transport that answers with the current body."""

    def __init__(self):
        self.body = b""
        self.client = httpx2.Client(transport=httpx2.MockTransport(self.answer))

    def answer(self, _):
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self.body)


def passes(family, way, bodies):
    memory = Memory()
    make, read = READERS[family]
    client = make(api_key="none", base_url="http://memory", http_client=memory.client, max_retries=0)
    seconds, failed, began = [], 0, time.perf_counter()
    while time.perf_counter() - began < WARM + LONG or len(seconds) < FEWEST:
        counts, start = time.perf_counter() - began >= WARM, time.thread_time()
        failed = 0
        for body in bodies:
            memory.body = body
            try:
                read(client, way)
            except Exception:
                # If the helper rejects an answer as incomplete, it has still read all of it.
                failed += 1
        if counts:
            seconds.append(time.thread_time() - start)
    return {"seconds": seconds, "failed": failed}


def main():
    formats = json.load(sys.stdin)
    print(json.dumps({
        name: {way: passes(f["family"], way, [b.encode() for b in f["bodies"]]) for way in ("events", "helper")}
        for name, f in formats.items()
    }))


if __name__ == "__main__":
    main()
