"""How long the Python SDKs take to read recorded streams from memory.

    decode.py < formats.json    # {format: {"family": …, "bodies": [text, …]}}

Prints, for each format and way of reading, the seconds of each pass over its streams: those of
the thread on its processor, since other work on the machine is no part of it. There is no
socket: the HTTP client of the SDK is given one that answers from memory, each body in one piece.
"""
import json
import sys
import time

import anthropic
import httpx2
import openai

WARM, LONG = 1.0, 3.0  # seconds of passes that do not count, and that do
FEWEST = 3  # passes that count, however long they take
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
    """What the next answer is."""

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
                # An answer that the helper takes for no whole one was read all the same.
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
