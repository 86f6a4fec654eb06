#!/usr/bin/env python3
"""Compares what the SDKs of OpenAI and Anthropic and Endstop report for recorded responses.

    cargo build -p endstop-cli
    bench/sdk/run.py SCRATCH --page docs/src/sdk-comparison.md

SCRATCH is a folder outside the repository. The SDKs are installed there, at the versions of
`requirements.txt` and `package-lock.json`. The results of all readers are stored in
SCRATCH/seen.json. The page is generated from them and from SCRATCH/speed.json, which `speed.py`
writes. `--only KEY,KEY` plays some cases.
"""
import argparse
import datetime
import glob
import gzip
import json
import os
import subprocess
import sys

import install
import page
import server

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("scratch")
PARSER.add_argument("--endstop", default=os.path.join(ROOT, "target", "debug", "endstop"))
PARSER.add_argument("--recordings", default=os.path.join(ROOT, "testdata", "recordings"),
                    help="the folder of the recordings that are not in this folder")
PARSER.add_argument("--only", help="the keys of the cases to play")
PARSER.add_argument("--page", help="write the page here")
PARSER.add_argument("--keep", action="store_true", help="play nothing; only generate the page again")

# The field of a request that contains the conversation.
CONVERSATION = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}
# The ways to send a body for each kind of end.
HOW = {"closed": ("whole", "pieces"), "dropped": ("dropped",)}


def recordings(folder):
    """Returns all rows by id."""
    rows = {}
    for path in [os.path.join(HERE, "recordings.jsonl.gz"), *sorted(glob.glob(os.path.join(folder, "*.jsonl.gz")))]:
        with gzip.open(path, "rt") as lines:
            for line in lines:
                row = json.loads(line)
                rows.setdefault(row["id"], row)
    return rows


def cases(folder, only):
    """Returns the cases, each with its row, with the changes of the case applied."""
    rows = recordings(folder)
    sections = json.load(open(os.path.join(HERE, "cases.json")))
    for section in sections:
        section["cases"] = [c for c in section["cases"] if not only or c["key"] in only]
        for case in section["cases"]:
            named = [r for i, r in rows.items() if i == case["id"]]
            if len(named) != 1:
                sys.exit(f"{case['key']}: no recording {case['id']}")
            case["row"] = changed(dict(named[0]), case)
    return sections


def changed(row, case):
    if "cut_before" in case:
        # Truncates before the event that contains the marker.
        marker = row["body"].index(case["cut_before"])
        row["body"] = row["body"][:row["body"].rindex("\n\n", 0, marker) + 2]
    row["body"] += case.get("append", "")
    if "replace" in case:
        old, new = case["replace"]
        if old not in row["body"]:
            sys.exit(f"{case['key']}: nothing to replace")
        row["body"] = row["body"].replace(old, new)
    row["status"] = case.get("status", row["status"])
    return row


def request(row):
    """Returns the recorded conversation and tools, or a default request if none was recorded."""
    recorded = row.get("request") or {}
    field = CONVERSATION[row["family"]]
    made = {"model": recorded.get("model") or "model", field: recorded.get(field) or [{"role": "user", "content": "go"}]}
    if recorded.get("tools"):
        made["tools"] = recorded["tools"]
    return made


def jobs(sections, sdk, http):
    for section in sections:
        for case in section["cases"]:
            row = case["row"]
            streamed = row["streaming"] or bool((row.get("request") or {}).get("stream"))
            for how in [how for end in case.get("ends", ["closed"]) for how in HOW[end]]:
                for way in ("iterate", "helper") if streamed else ("create",):
                    for retries in (0, None):
                        reader = f"{sdk}-{way}-{'default' if retries is None else retries}"
                        key = f"{case['key']}/{how}/{reader}"
                        yield {"key": key, "family": row["family"], "way": way, "retries": retries,
                               "base": http.base(*key.split("/")), "request": request(row)}


def by_sdks(sections, commands):
    """Returns the results of each SDK by key of the job, with the number of requests it made."""
    responses = {c["key"]: (c["row"]["status"], c["row"]["headers"] or {}, c["row"]["body"].encode())
                 for s in sections for c in s["cases"]}
    seen = {}
    with server.Server(responses) as http:
        for sdk, command in commands.items():
            todo = "".join(json.dumps(job) + "\n" for job in jobs(sections, sdk, http))
            done = subprocess.run(command, input=todo, capture_output=True, text=True)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            if done.returncode != 0 or len(lines) != todo.count("\n"):
                sys.exit(f"{sdk}: status {done.returncode}, {len(lines)} lines: {done.stderr[-2000:]}")
            for line in lines:
                seen[line["key"]] = {**line, "requests": http.requests(*line["key"].split("/"))}
    return seen


def by_endstop(sections, endstop):
    """Returns the output of `endstop detect --jsonl` by key of the case."""
    rows = [{"id": c["key"], **{f: c["row"].get(f) for f in ("api", "status", "headers", "body", "body_encoding", "request")}}
            for s in sections for c in s["cases"]]
    done = subprocess.run([endstop, "detect", "--jsonl"], input="".join(json.dumps(r) + "\n" for r in rows),
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"endstop detect: status {done.returncode}: {done.stderr}")
    return {line["id"]: line for line in map(json.loads, done.stdout.splitlines())}


def main():
    args = PARSER.parse_args()
    kept = os.path.join(args.scratch, "seen.json")
    if args.keep:
        found = json.load(open(kept))
    else:
        python, node, versions = install.sdks(args.scratch)
        sections = cases(args.recordings, args.only and args.only.split(","))
        commands = {"python": [python, os.path.join(HERE, "read.py")], "node": [node, install.beside(args.scratch, "read.mjs")]}
        version = subprocess.run([args.endstop, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
        found = {"date": datetime.date.today().isoformat(), "versions": {"Endstop": version, **versions},
                 "sdks": by_sdks(sections, commands), "endstop": by_endstop(sections, args.endstop),
                 "sections": [{**s, "cases": [{k: v for k, v in c.items() if k != "row"} | {"provenance": c["row"]["provenance"]} for c in s["cases"]]} for s in sections]}
        with open(kept, "w") as file:
            json.dump(found, file, indent=1)
    speed = os.path.join(args.scratch, "speed.json")
    text = page.written(found, json.load(open(speed)) if os.path.exists(speed) else None)
    if args.page:
        with open(args.page, "w") as file:
            file.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
