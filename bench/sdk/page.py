"""Writes the page: tables of the results of each reader, a summary and the versions.

    text = page.written(found, speed)    # from seen.json of run.py and speed.json of speed.py
"""

import textwrap

SDKS = (("python", "Python SDK"), ("node", "Node SDK"))
WAYS = (("create", ""), ("iterate", "events: "), ("helper", "helper: "))
# Values of `finish_reason`, `stop_reason` and `status` that mean a normal end.
NORMAL = {"stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence", "completed"}
REASONS = {"natural_completion", "stop_sequence", "tool_use"}

HEAD = """# Comparison with the SDKs

This page compares what Endstop and the SDKs of OpenAI and Anthropic report for responses that are
easily misread. All read the same bytes. `bench/sdk/run.py` generates the page.

{versions}

An SDK is not an agent loop: it returns what the provider sent and leaves the interpretation to its
user. The page shows which field the user has to check, and when there is none.

## How it was measured

- A server on the loopback interface plays a recording: its status, its headers and its body, byte
  for byte. Every response is played in one chunk and in chunks of 61 bytes, with the retries of an
  SDK off and at their default. {same}
- A stream is read in both ways that the SDKs offer. *events* is the loop over `create(stream=True)`
  (`stream: true`), which keeps the last `finish_reason`, `stop_reason` or `status` that is not
  null. *helper* is `stream()` with its final object. A response that is not streamed is read with
  `create`.
- Responses of OpenAI-compatible servers are read with the SDK of OpenAI and another base URL.
- Endstop is `endstop detect --jsonl`. It gets only the bytes, so that it cannot tell a connection
  that closed from one that dropped.
- The requests contain the recorded conversation and tools, and nothing else of the recording.

| reported as | an SDK | Endstop |
|---|---|---|
| *normal* | no exception, and the value is one of a normal end: `stop`, `tool_calls`, `end_turn`, `tool_use`, `stop_sequence`, `completed` | reason `natural_completion`, `stop_sequence` or `tool_use` |
| *no reason* | no exception, and the value is null, missing or empty | (there is always a reason) |
| *other end* | no exception; the value is another one, or the field `refusal` is filled | any other reason |
| *error* | an exception, or an event of type `error` | an `error`, with its class |

**Bold** marks a *normal* for an incomplete answer, or for an answer that lacks a tool call that was
sent. After an error the table shows what the reader had collected until then, because a helper has
no final object in that case.

## Summary

The counts leave out the lines in which the provider gives no reason, because no reader can know it.

{summary}
"""

TAIL = """
## Reproduce

```sh
cargo build -p endstop-cli
bench/sdk/speed.py SCRATCH
bench/sdk/run.py SCRATCH --page docs/src/sdk-comparison.md
```

The recordings are those of `testdata/recordings` and of `bench/sdk/recordings.jsonl.gz`. A file
`SOURCES.md` next to them lists their sources and licences.
"""


def sdk_verdict(seen):
    if seen["exception"] or seen["events"]:
        return "error"
    if not seen["value"]:
        return "no reason"
    return "normal" if seen["value"] in NORMAL and not seen["refusal"] else "other end"


def sdk_words(seen):
    """Describes the result of an SDK."""
    words = []
    if seen["exception"]:
        words.append(f"`{seen['exception']}`")
    if seen["events"]:
        words.append("an event `error`")
    if seen["value"]:
        words.append(f"`{seen['value']}`" + (f" (`{seen['detail']}`)" if seen["detail"] else ""))
    return ", ".join(words + said(seen["text"], seen["refusal"], seen["calls"], seen["parse"], seen["exception"]))


def said(text, refusal, calls, parse, failed):
    words = []
    if text or not (refusal or calls or failed):
        words.append(f"{text} characters")
    if refusal:
        words.append(f"refusal of {refusal}")
    if calls:
        words.append(f"{calls} call{'s' if calls > 1 else ''}" + ("" if parse == calls else ", arguments do not parse"))
    return words


def endstop_verdict(line):
    if line["error"]:
        return "error"
    return "normal" if line["signal"]["reason"] in REASONS else "other end"


def endstop_calls(line):
    return len((line["turn"] or {"tool_calls": []})["tool_calls"])


def endstop_words(line):
    signal, turn = line["signal"], line["turn"]
    # The content before an error is a turn as well; without any content there is no turn.
    turn = turn or {"text": "", "tool_calls": [], "refusal": None}
    words = [f"`{signal['reason']}`"]
    if line["error"]:
        words = [f"`{line['error']['class']}`"]
    elif signal["confidence"] != "high":
        words[0] += f", {signal['confidence']} confidence"
    calls = turn["tool_calls"]
    parse = sum(isinstance(call["arguments"], dict) for call in calls)
    return ", ".join(words + said(len(turn["text"] or ""), len(turn["refusal"] or ""), len(calls), parse, line["error"]))


def misled(case, verdict, calls):
    """True if a normal end is reported for an incomplete answer, or a call is missing."""
    return verdict == "normal" and (case["whole"] is False or calls < case.get("calls", 0))


def shown(case, verdict, words, calls):
    if misled(case, verdict, calls):
        return f"**{verdict}**: {words}" + (", the call is missing" if calls < case.get("calls", 0) else "")
    return f"{verdict}: {words}"


def groups(found, case, end):
    """Returns the runs of a case with this end, by SDK and way of reading."""
    by = {}
    for key, seen in found["sdks"].items():
        name, how, reader = key.split("/")
        if name == case["key"] and (how == "dropped") == (end == "dropped"):
            sdk, way, retries = reader.split("-")
            by.setdefault((sdk, way), []).append((how, retries, seen))
    return by


def lines(found):
    """Yields (section, case, end, runs by SDK and way) for each line of a table."""
    for section in found["sections"]:
        for case in section["cases"]:
            for end in case.get("ends", ["closed"]):
                yield section["title"], case, end, groups(found, case, end)


def cell(found, case, runs, sdk):
    parts = []
    for way, label in WAYS:
        if (sdk, way) in runs:
            outcomes = {}
            for how, retries, seen in runs[sdk, way]:
                words = shown(case, sdk_verdict(seen), sdk_words(seen), seen["calls"])
                outcomes.setdefault(words, []).append(f"{how}, retries {retries}")
            for words, of in outcomes.items():
                parts.append(label + words + ("" if len(outcomes) == 1 else f" ({'; '.join(of)})"))
            most = max(seen["requests"] for _, _, seen in runs[sdk, way])
            if most > 1:
                parts[-1] += f"; {most} requests by default"
    return "<br>".join(parts)


def what(case, end):
    words = case["what"]
    if "ends" in case:
        words += "; the connection was dropped" if end == "dropped" else "; the body ended as if it were complete"
    if "edited" in case["provenance"]:
        words += " (a fixture, perhaps edited by hand)"
    return words


def tables(found):
    text, title = "", None
    for section, case, end, runs in lines(found):
        if section != title:
            title = section
            text += f"\n## {title}\n\n| what was sent | Python SDK | Node SDK | Endstop |\n|---|---|---|---|\n"
        line = found["endstop"][case["key"]]
        cells = [what(case, end), *(cell(found, case, runs, sdk) for sdk, _ in SDKS),
                 shown(case, endstop_verdict(line), endstop_words(line), endstop_calls(line))]
        text += f"| {' | '.join(cells)} |\n"
    return text


def summary(found):
    """Counts the verdicts of each reader, for incomplete and for complete answers."""
    count = {}

    def add(reader, case, verdict, calls):
        if case["whole"] is None:
            return
        if case["whole"]:
            column = "as a whole" if verdict == "normal" and not misled(case, verdict, calls) else "otherwise"
        else:
            column = verdict if verdict in ("normal", "no reason") else "told"
        key = (case["whole"], column)
        count.setdefault(reader, {})[key] = count.setdefault(reader, {}).get(key, 0) + 1

    for _, case, _, runs in lines(found):
        for (sdk, way), of in runs.items():
            # A response that is not streamed has only `create`, which counts for both ways.
            for to in ("iterate", "helper") if way == "create" else (way,):
                add((sdk, to), case, sdk_verdict(of[0][2]), of[0][2]["calls"])
        line = found["endstop"][case["key"]]
        add(("endstop", ""), case, endstop_verdict(line), endstop_calls(line))
    readers = [(f"{name}, {way}", (sdk, to)) for sdk, name in SDKS for to, way in (("iterate", "events"), ("helper", "helper"))]
    readers.append(("Endstop", ("endstop", "")))
    of = count["endstop", ""]
    cut, good = (sum(n for (whole, _), n in of.items() if whole is which) for which in (False, True))
    text = (f"| | {cut} incomplete: *normal* | *no reason* | *other end* or *error* "
            f"| {good} complete: *normal* | anything else, or a call missing |\n|---|---:|---:|---:|---:|---:|\n")
    columns = ((False, "normal"), (False, "no reason"), (False, "told"), (True, "as a whole"), (True, "otherwise"))
    for name, reader in readers:
        text += f"| {name} | {' | '.join(str(count[reader].get(column, 0)) for column in columns)} |\n"
    return text


def same(found):
    """Returns a sentence about the effect of chunks and retries."""
    differ = sorted({case["key"] for _, case, end, runs in lines(found) for of in runs.values()
                     if len({(sdk_verdict(s), sdk_words(s)) for _, _, s in of}) > 1})
    return ("Neither changed what a reader saw." if not differ
            else f"If that made a difference ({', '.join(differ)}), all results are shown.")


def written(found, speed):
    versions = [f"{name} {version}" for name, version in found["versions"].items()]
    versions = textwrap.fill(f"Read on {found['date']} with {', '.join(versions[:-1])} and {versions[-1]}.", 100)
    text = HEAD.format(date=found["date"], versions=versions, same=same(found), summary=summary(found))
    text += tables(found).lstrip("\n")
    if speed:
        text += speed_section(speed)
    return text + TAIL


def speed_section(speed):
    text = f"\n## Speed\n\n{textwrap.fill(speed['words'], 100)}\n\n"
    text += "| format | streams | bytes | " + " | ".join(speed["readers"]) + " |\n"
    text += "|---|---:|---:|" + "---:|" * len(speed["readers"]) + "\n"
    for name, row in speed["formats"].items():
        rates = " | ".join(row["rates"].get(reader, "-") for reader in speed["readers"])
        text += f"| {name} | {row['streams']} | {row['bytes']:,} | {rates} |\n"
    text += f"\n{textwrap.fill(speed['ratio_words'], 100)}\n\n"
    text += "| format | relative to `Value`, median | minimum | relative to `IgnoredAny`, median | minimum |\n"
    text += "|---|---:|---:|---:|---:|\n"
    for name, ratios in speed["ratios"].items():
        text += f"| {name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |\n"
    return text
