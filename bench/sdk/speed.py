#!/usr/bin/env python3
"""How fast the SDKs and Endstop's decoder read the same recorded streams, from memory.

    cargo bench -p endstop-wire --bench decode --no-run
    bench/sdk/speed.py SCRATCH [--rounds N] [--recordings DIR]

Each round runs the Python SDKs, the Node SDKs and `cargo bench … --bench decode` once, one after
the other; the medians of all passes of all rounds go to SCRATCH/speed.json, which `run.py` puts
into the page. The streams are those of the benchmark: recorded, status 200, no error in them.
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

# The formats that the SDKs read too, as `benches/corpus/mod.rs` names them.
FORMATS = {
    "openai-chat": ("openai-chat", ["openai-chat"]),
    "openai-responses": ("openai-responses", ["openai-responses", "xai-responses"]),
    "anthropic-messages": ("anthropic", ["anthropic-messages"]),
}
# The contestant of the benchmark that stands for Endstop.
DECODER = "decoder, whole bodies"
WORDS = """Megabytes a second of one thread's processor time, the median of all passes over the recorded
streams; in brackets the best. Bodies come from memory, in one piece. An SDK makes its objects of every event and sends a
request for every stream, which is part of its time; Endstop's decoder makes deltas, a turn and its
signal, and has no request. Read the order of magnitude: most streams are of a few kilobytes."""

RATIO_WORDS = """Endstop's decoder, from the bytes as they came to the turn and its signal, beside `serde_json` alone
on the payloads, framing removed: into `Value`, and into `IgnoredAny`, which only checks. They take
turns in one process. Each number is a ratio of times: below 1 the decoder is the faster. `Value` keeps
the order of keys here, as the workspace has it, which makes it slower than its default."""


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
    """(streams, bytes, {what: (median MB/s, best MB/s)}) of each format, out of what the benchmark prints."""
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
