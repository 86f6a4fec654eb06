#!/usr/bin/env python3
"""Counts, per data set, the successful runs that the default limits would have ended.

    python3 bench/defaults.py FOLDER    # *.jsonl.zst of the neutral format (neutral-traj/1); needs zstdcat

A run is successful if its outcome is a success or a reward of 1. A limit that is met in the last step
does not count. "before" counts a command that ran and failed as a mistake, "after" does not, because
`shell` reports such a command as `ok` with its exit status. Clocks, retries and polling cannot be
evaluated, because the recordings have no times.
"""
import glob
import json
import os
import subprocess
import sys

COMMANDS = {"bash_exec", "ctf_exec", "python_exec"}


def canonical(arguments):
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return arguments.strip()
    return json.dumps(arguments, sort_keys=True)


def judged(run):
    """Returns, for each limit, if it would have ended the run: 3 mistakes (before, after), 3 unproductive
    turns, 25 turns."""
    steps = [step for step in run["steps"] if step["role"] == "agent"]
    before = after = unproductive = 0
    ended = [False, False, False, len(steps) > 25]
    recent, texts = [None] * 4, set()
    for at, step in enumerate(steps):
        calls, results = step["tool_calls"], step["tool_results"]
        if not calls or not results:
            continue
        failed = all(result["is_error"] for result in results)
        ran = all(call["name"] in COMMANDS for call in calls)
        before = before + 1 if failed else 0
        after = after + 1 if failed and not ran else 0
        did = sorted(
            (call["name"], canonical(call["arguments"]), result["content"], result["is_error"])
            for call, result in zip(calls, results)
        )
        text = step["text"].strip()
        unproductive = unproductive + 1 if did in recent and (not text or text in texts) else 0
        texts.add(text)
        recent = recent[1:] + [did]
        if at < len(steps) - 1:
            ended[0] |= before >= 3
            ended[1] |= after >= 3
            ended[2] |= unproductive >= 3
    return ended


def main():
    row = "{:28} {:>6} {:>18} {:>18} {:>18} {:>12}"
    print(row.format("data set", "good", "3 mistakes, before", "3 mistakes, after", "no progress 3", "25 turns"))
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jsonl.zst"))):
        lines = subprocess.run(["zstdcat", path], capture_output=True, check=True).stdout.splitlines()
        good, counts = 0, [0, 0, 0, 0]
        for run in map(json.loads, lines):
            outcome = run["outcome"]
            success = outcome.get("success")
            if success is None:
                success = (outcome.get("reward") or 0) >= 1
            if success:
                good += 1
                counts = [count + ended for count, ended in zip(counts, judged(run))]
        shares = [f"{n} ({100 * n / good:.2f} %)" if good else "0" for n in counts]
        print(row.format(os.path.basename(path).removesuffix(".jsonl.zst"), good, *shares))


if __name__ == "__main__":
    main()
