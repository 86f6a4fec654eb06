#!/usr/bin/env python3
"""Measures how fast the SDKs and Endstop's decoder read the same recorded streams from memory.

    cargo bench -p endstop-wire --bench decode --no-run
    bench/sdk/speed.py SCRATCH [--rounds N] [--recordings DIR]

Each round runs the Python SDKs, the Node SDKs and `cargo bench … --bench decode` once, in sequence.
The medians of all passes of all rounds are written to SCRATCH/speed.json, which `run.py` adds to
the page. The streams are those of the benchmark: recorded, with status 200 and without an error.
"""
import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys

import install

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("scratch")
PARSER.add_argument("--rounds", type=int, default=3)
PARSER.add_argument("--recordings", default=os.path.join(ROOT, "testdata", "recordings"))

# The formats that the SDKs can read as well, by their names in `benches/corpus/mod.rs`.
FORMATS = {
    "openai-chat": ("openai-chat", ["openai-chat"]),
    "openai-responses": ("openai-responses", ["openai-responses", "xai-responses"]),
    "anthropic-messages": ("anthropic", ["anthropic-messages"]),
}
# The entry of the benchmark that is shown as Endstop.
DECODER = "decoder, whole bodies"
WORDS = """Megabytes per second of one thread's processor time: the median of all passes over the recorded
streams, with the best pass in brackets. Bodies come from memory in one chunk. An SDK creates its objects for
every event and sends a request for every stream, which is part of its time. Endstop's decoder creates deltas, a
turn and its signal, and sends no request. Read the order of magnitude, because most streams have a few kilobytes."""

RATIO_WORDS = """Endstop's decoder, from the received bytes to the turn and its signal, compared with `serde_json` alone on
the payloads without framing: into `Value`, and into `IgnoredAny`, which only validates. They alternate
in one process. Each number is a ratio of times; below 1 the decoder is faster. `Value` preserves
the order of keys here, as configured in the workspace, which makes it slower than its default."""


def bodies(files, folder):
    kept = []
    for file in files:
        with gzip.open(os.path.join(folder, f"{file}.jsonl.gz"), "rt") as lines:
            for row in map(json.loads, lines):
                if row["streaming"] and row["status"] == 200 and row["expected"]["reason"] != "error_termination":
                    kept.append(row["body"])
    return kept


def by_sdk(command, formats):
    done = subprocess.run(command, input=json.dumps(formats), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[-1]}: status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def by_decoder(folder):
    """Parses the output of the benchmark: (streams, bytes, {what: (median MB/s, best MB/s)}) per format."""
    command = ["cargo", "bench", "--quiet", "-p", "endstop-wire", "--bench", "decode", "--", "--recordings", os.path.abspath(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo bench: status {done.returncode}: {done.stderr[-2000:]}")
    found = {}
    for part in done.stdout.split("### ")[1:]:
        name, streams, size = re.match(r"(\S+): (\d+) streams, (\d+) bytes", part).groups()
        rates = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \|", part, re.MULTILINE)
        found[name] = (int(streams), int(size), {what: (float(median), float(best)) for what, median, best in rates})
    return found


def main():
    args = PARSER.parse_args()
    python, node, _ = install.sdks(args.scratch)
    formats = {name: {"family": family, "bodies": bodies(files, args.recordings)} for name, (family, files) in FORMATS.items()}
    commands = {"Python SDK": [python, os.path.join(HERE, "decode.py")],
                "Node SDK": [node, install.beside(args.scratch, "decode.mjs")]}
    seconds, decoder = {}, {}
    for _ in range(args.rounds):
        for sdk, command in commands.items():
            for name, ways in by_sdk(command, formats).items():
                for way, seen in ways.items():
                    seconds.setdefault((name, f"{sdk}, {way}"), []).extend(seen["seconds"])
        for name, seen in by_decoder(args.recordings).items():
            decoder.setdefault(name, []).append(seen)
    readers = [f"{sdk}, {way}" for sdk in commands for way in ("events", "helper")] + ["Endstop"]
    speed = {"words": WORDS, "readers": readers, "formats": {}, "ratio_words": RATIO_WORDS, "ratios": {}}
    for name, rounds in decoder.items():
        speed["ratios"][name] = [
            statistics.median(rates[other][which] / rates[DECODER][which] for _, _, rates in rounds)
            for other in ("`serde_json` into `Value`", "`serde_json` into `IgnoredAny`") for which in (0, 1)]
    for name, known in formats.items():
        size = sum(len(body.encode()) for body in known["bodies"])
        streams = len(known["bodies"])
        if (streams, size) != decoder[name][0][:2]:
            sys.exit(f"{name}: {streams} streams of {size} bytes here, {decoder[name][0][:2]} in the benchmark")
        rates = {reader: f"{size / statistics.median(of) / 1e6:.1f} ({size / min(of) / 1e6:.1f})"
                 for (format_name, reader), of in seconds.items() if format_name == name}
        ours = [rates[DECODER] for _, _, rates in decoder[name]]
        rates["Endstop"] = f"{statistics.median(m for m, _ in ours):.0f} ({max(b for _, b in ours):.0f})"
        speed["formats"][name] = {"streams": streams, "bytes": size, "rates": rates}
    with open(os.path.join(args.scratch, "speed.json"), "w") as file:
        json.dump(speed, file, indent=1)
    print(json.dumps({"formats": speed["formats"], "ratios": speed["ratios"]}, indent=1))


if __name__ == "__main__":
    main()
