"""Compares what the provider saw of two runs, with ids, times and ports masked."""
import json
import re

# A header that differs for a listed reason.
HEADERS = {
    "host": "the client names guard's address, and guard the provider's",
    "accept-encoding": "guard asks for what it can read while it passes",
    "connection": "between two machines only",
    "keep-alive": "between two machines only",
    "content-length": "follows from masked fields of the body",
    "traceparent": "an id", "x-request-id": "an id", "x-client-request-id": "an id", "idempotency-key": "an id",
    "x-stainless-read-timeout": "a time",
    "session-id": "an id", "thread-id": "an id", "x-session-id": "an id", "x-session-affinity": "an id",
    "x-claude-code-session-id": "an id", "x-codex-turn-metadata": "ids", "x-codex-window-id": "an id",
}
MASKS = [
    # codex reports the open sockets to the model; ports are drawn by the system.
    (re.compile(r"(127\.0\.0\.1|localhost):\d+(/endstop_guard_[0-9a-f]+)?(/run/[\w.-]+)?"), "HOST"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\b(ses|msg|prt|user|session|req|rs|chatcmpl)_[A-Za-z0-9_]{8,}"), "ID"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "HEX"),
    (re.compile(r"cch=\w+"), "cch"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b1[6-9]\d{8,11}(\.\d+)?\b"), "TIME"),
    # Gemini CLI makes the ids of calls from the time.
    (re.compile(r"_1[6-9]\d{11}_"), "_TIME_"),
    (re.compile(r"(?i)(wall time|duration|elapsed|PIDs?|Process Group PGID|chunk id)(\W{1,4})[\w.]+"), r"\1 N"),
]

SKILL = re.compile(r"<skill>.*?</skill>", re.DOTALL)


def masked(text):
    for pattern, by in MASKS:
        text = pattern.sub(by, text)
    # Gemini CLI reads its skills in parallel, and lists them in the order in which they arrive.
    skills = iter(sorted(SKILL.findall(text)))
    return SKILL.sub(lambda _: next(skills), text)


def seen(requests):
    """What is compared of each model call, in an order that does not depend on time."""
    lines = []
    for request in requests:
        if not request["format"]:
            continue
        headers = sorted(f"{name}: {masked(value)}" for name, value in request["headers"] if name not in HEADERS)
        body = masked(json.dumps(request["body"], sort_keys=True))
        lines.append((request["path"], request["kind"], body, headers))
    return sorted(lines, key=str)


def differences(direct, guarded):
    """The differences between two runs, in words; empty if there are none."""
    one, two = seen(direct.requests), seen(guarded.requests)
    found = []
    if len(one) != len(two):
        found.append(f"{len(one)} calls without guard, {len(two)} with it")
    for (path, _, body, headers), (path2, _, body2, headers2) in zip(one, two):
        if path != path2:
            found.append(f"path {path} / {path2}")
        if headers != headers2:
            found.append(f"headers {sorted(set(headers) ^ set(headers2))}")
        if body != body2:
            at = next((at for at, (a, b) in enumerate(zip(body, body2)) if a != b), min(len(body), len(body2)))
            found.append(f"body: …{body[max(0, at - 60):at + 60]}… / …{body2[max(0, at - 60):at + 60]}…")
    if direct.status != guarded.status:
        found.append(f"exit {direct.status} / {guarded.status}")
    done = ["All done" in trial.out for trial in (direct, guarded)]
    if done[0] != done[1]:
        found.append("the final text is missing")
    return found
