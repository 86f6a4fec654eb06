"""Calls a model over chat completions: one attempt, its bounds, what a failed one means, and what calls cost."""
import contextlib
import http.client
import json
import os
import socket
import threading
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

MAX_TOKENS = 8192  # output cap of each request
CHARACTERS = 16 * MAX_TOKENS  # a response longer than its cap can be is given up, also if it only reasons (sentence 4)
WHOLE = 5  # times the silence: the time for a whole response
CONNECT = 10  # seconds
LINGER = 2  # seconds after the finish value in which the usage can still arrive (S-07)
LONGEST_WAIT = 60  # seconds; if the provider names a longer pause, the run ends and says so
TOO_LONG = ("context_length_exceeded", "maximum context length", "context window", "prompt is too long", "too many tokens")
QUOTA = ("insufficient_quota", "billing", "credit")  # a 429 that waiting does not cure
CHARACTERS_PER_TOKEN = 3  # of the estimate, which is rather too high


class Failed(Exception):
    """An attempt without a whole response. `repeat` says whether the same request can succeed later."""

    def __init__(self, reason, detail, repeat=False, wait=None):
        super().__init__(detail)
        self.reason, self.detail, self.repeat, self.wait = reason, detail, repeat, wait
        self.response = None  # what had arrived, if the provider had started to answer


class Response:
    def __init__(self):
        self.text = self.reasoning = self.refusal = ""
        self.calls, self.finish, self.usage = [], None, None
        self.started = False
        self._open = {}  # the call that each index of the stream adds to

    def size(self):
        calls = sum(len(call["name"]) + len(call["arguments"]) for call in self.calls)
        return len(self.text) + len(self.reasoning) + len(self.refusal) + calls

    def add(self, chunk):
        if chunk.get("error"):
            # Sentence 15: an error is not an answer, whatever the status was.
            raise failure(None, chunk["error"])
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or []:
            if choice.get("index"):
                continue  # one choice was asked for
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
            self.refusal += delta.get("refusal") or ""
            for part in delta.get("tool_calls") or []:
                self.add_call(part)
            self.finish = choice.get("finish_reason") or self.finish
            if not isinstance(self.finish, (str, type(None))):
                raise TypeError("finish_reason")

    def add_call(self, part):
        function, index, identity = part.get("function") or {}, part.get("index", 0), str(part.get("id") or "")
        call = self._open.get(index)
        # Servers that number all calls 0, or none, start the next one with another id or by naming a function again.
        other = call and identity and identity != call["id"]
        if call is None or other or "index" not in part and function.get("name"):
            call = self._open[index] = {"id": identity, "name": "", "arguments": ""}
            self.calls.append(call)
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


class Model:
    def __init__(self, silence, stop, environment=os.environ):
        self.silence, self.stop = silence, stop
        self.name = environment.get("OPENAI_MODEL") or "gpt-4o"
        self.key = environment.get("OPENAI_API_KEY") or ""
        self.url = urlsplit((environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/"))
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            raise ValueError("invalid OPENAI_BASE_URL: expected an address, for example http://127.0.0.1:8080/v1")

    def body(self, messages, tools, schema=None):
        body = {"model": self.name, "messages": messages, "max_tokens": MAX_TOKENS,
                "stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = tools
        if schema:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return json.dumps(body).encode()

    def attempt(self, body):
        """Returns a whole response: one with a finish value. Otherwise raises `Failed`, or `Ended` if the run was stopped."""
        response, started = Response(), time.monotonic()
        try:
            self.exchange(body, response)
            return response
        except socket.timeout:
            failed = Failed("silent", f"no content for {self.silence:g} s")
        except (OSError, http.client.HTTPException) as error:
            failed = Failed("connection_lost", f"{type(error).__name__}: {error}", repeat=True)
        except Failed as error:
            failed = error
        if time.monotonic() - started >= WHOLE * self.silence:
            failed = Failed("silent", f"no end for {WHOLE * self.silence:g} s")
        if response.started:
            failed.response = response
        if self.key:
            failed.detail = failed.detail.replace(self.key, "[key]")
        raise failed

    def exchange(self, body, response):
        with contextlib.closing(self.connect()) as connection:
            sock = connection.sock  # the connection forgets it when the server announces that it will close

            def wake():
                # Ends a read in another thread; closing the descriptor would leave it waiting.
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

            with self.stop.waking(wake), at_most(WHOLE * self.silence, wake):
                sock.settimeout(self.silence)
                connection.request("POST", (self.url.path or "/v1") + "/chat/completions", body, self.headers())
                reply = connection.getresponse()
                if reply.status != 200:
                    raise refused(reply)
                response.started = True
                self.read(reply, sock, response)

    def connect(self):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=CONNECT)
        try:
            connection.connect()
        except socket.timeout:
            raise Failed("connection_lost", f"no connection within {CONNECT} s", repeat=True) from None
        return connection

    def headers(self):
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        return {**headers, "authorization": f"Bearer {self.key}"} if self.key else headers

    def read(self, reply, sock, response):
        heard, finished, pending = time.monotonic(), None, b""
        while True:
            left = (finished + LINGER if finished else heard + self.silence) - time.monotonic()
            try:
                if left <= 0:
                    raise socket.timeout
                sock.settimeout(left)
                data = reply.read1(65536)
            except (OSError, http.client.HTTPException):
                if finished:
                    return
                raise
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            size = response.size()
            if any(self.take(line, response) for line in lines):
                break
            # Only content is a sign of life: pings and empty chunks are not (sentence 3).
            heard = time.monotonic() if self.alive(response, size) else heard
            finished = finished or response.finish and time.monotonic()
            if max(response.size(), len(pending)) > CHARACTERS:
                raise Failed("too_large", f"the response is longer than {CHARACTERS} characters")
        if not response.finish:
            raise Failed("cut", "the stream ended without a finish value", repeat=True)

    def alive(self, response, size):
        return response.size() > size

    def take(self, line, response):
        """Adds a line of the stream; returns whether it is the last one."""
        if not line.startswith(b"data:"):
            return False
        data = line[5:].strip()
        if data == b"[DONE]":
            return True
        try:
            response.add(json.loads(data))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise Failed("unreadable", f"a part of the response cannot be read: {data[:80]!r}", repeat=True) from None
        return False


@contextlib.contextmanager
def at_most(seconds, wake):
    timer = threading.Timer(seconds, wake)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def refused(reply):
    text = reply.read(65536).decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        error = text
    return failure(reply.status, error, reply.getheader("retry-after"))


def failure(status, error, retry_after=None):
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), str(fields.get("message"))[:300]
    status = status or (code if isinstance(code, int) else None)
    about = f"{code} {fields.get('type')} {message}".lower()
    detail = f"HTTP {status}: {message}" if status else message
    wait = pause(retry_after)
    detail += f" (to be repeated after {wait:g} s)" if wait else ""
    if status in (None, 400, 413, 422) and any(mark in about for mark in TOO_LONG):
        return Failed("context_too_long", detail)
    if status == 429 and not any(mark in about for mark in QUOTA):
        return Failed("rate_limited", detail, repeat=(wait or 0) <= LONGEST_WAIT, wait=wait)
    if status and 400 <= status < 500 and status not in (408, 409, 425):
        return Failed("rejected", detail)
    return Failed("provider_error", detail, repeat=(wait or 0) <= LONGEST_WAIT, wait=wait)


def pause(retry_after):
    """Seconds of a Retry-After header, which is a number or a date; None if there is none that can be read."""
    try:
        seconds = float(retry_after)
    except (TypeError, ValueError):
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError, IndexError, AttributeError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


class Ledger:
    """What a run has used, its sub-agents included. The price is USD per million tokens: input, output, cache read, cache write."""

    def __init__(self, price=None):
        self.price = price
        self.turns, self.spent, self.known = 0, 0.0, price is not None
        self.tokens = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0}

    def charge(self, request, response):
        counts = counted(response.usage)
        # Sentence 35: no usage, or zero for content, does not make a call free. The estimate counts for the limit, and the
        # reported cost is unknown (sentence 38).
        if counts is None or not counts[0] or response.size() and not counts[1]:
            counts = (len(request) // CHARACTERS_PER_TOKEN, response.size() // CHARACTERS_PER_TOKEN, 0, 0)
            self.known = False
        for name, count in zip(self.tokens, counts):
            self.tokens[name] += count
        self.spent += self.cost(*counts)

    def dump(self):
        return {"turns": self.turns, "spent": self.spent, "known": self.known, "tokens": self.tokens}

    def load(self, used):
        self.turns, self.spent, self.known, self.tokens = (used[name] for name in ("turns", "spent", "known", "tokens"))

    def cost(self, prompt, output, read, write):
        if self.price is None:
            return 0.0
        plain = max(0, prompt - read - write)
        return sum(count * price for count, price in zip((plain, output, read, write), self.price)) / 1e6


def counted(usage):
    """Tokens of a prompt, of the output, and of the prompt's parts read from and written to the cache; None if they are not known."""
    try:
        details = usage.get("prompt_tokens_details") or {}
        prompt, output, total = usage["prompt_tokens"], usage["completion_tokens"], usage.get("total_tokens") or 0
        read = details.get("cached_tokens") or 0
        write = details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens") or 0
        # Some providers count reasoning only in the total.
        counts = (prompt, max(output, total - prompt), read, write)
    except (AttributeError, KeyError, TypeError):
        return None
    return counts if all(type(count) is int and count >= 0 for count in counts) else None
