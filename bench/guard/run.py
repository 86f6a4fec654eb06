"""Runs real agent programs under `endstop guard`, and writes what happened as tables.

    python3 bench/guard/run.py LAB --endstop target/release/endstop [--client NAME]... [--case NAME]... [--out FILE]

LAB is a folder outside the repository, which can be empty: the clients are installed there. Their keys
are planted, their home is inside, and only the loopback interface is used. The status is 1 if anything
differs from what is expected.
"""
import argparse
import datetime
import os
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import install
from cases import CASES
from clients import CLIENTS, KEY
from details import DETAILS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab")
    parser.add_argument("--endstop", default="endstop")
    parser.add_argument("--client", action="append", help="part of a name; the default is all")
    parser.add_argument("--case", action="append", choices=[*CASES, "details"])
    parser.add_argument("--out")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    lab, endstop = os.path.abspath(options.lab), os.path.abspath(options.endstop)
    folders = {name: install.group(lab, kind, name) for kind, names in (("npm", install.NPM), ("venv", install.PIP))
               for name in names}
    wanted = [client for client in CLIENTS if folders[client.group] and
              any(part.lower() in client.name.lower() for part in options.client or [""])]
    cases = [name for name in CASES if name in (options.case or CASES)]
    with ThreadPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(all_of, lab, client, folders, endstop, cases) for client in wanted]
        rows = [row for job in jobs for row in job.result()]
        details = []
        if not options.case or "details" in options.case:
            done = [pool.submit(detail, check, lab, folders, endstop) for check in DETAILS
                    if any(check.about[0] == client.name for client in wanted)]
            details = [one.result() for one in done]
    text = page(rows, details, wanted, folders, endstop)
    if options.out:
        with open(options.out, "w") as file:
            file.write(text)
    else:
        print(text)
    return 1 if any(row["faults"] for row in rows) or any(not good for _, _, good, _ in details) else 0


def all_of(lab, client, folders, endstop, cases):
    return [attempt(lab, client, folders[client.group], endstop, case) for case in cases]


def attempt(lab, client, folder, endstop, case):
    try:
        result, faults = CASES[case](lab, client, folder, endstop)
    except Exception:
        result, faults = None, [traceback.format_exc(limit=3)]
    if result:
        # A key may be in the client's own files, but never in what guard says.
        faults += ["the key is in the output"] if KEY in result.err else []
        faults += [f"left: {line}" for line in result.left]
    said = faults or ["as expected"]
    print(f"{client.name}: {case}: {'; '.join(said)}", file=sys.stderr, flush=True)
    return {"client": client.name, "case": case, "result": result, "faults": faults}


def detail(check, lab, folders, endstop):
    client, title = check.about
    try:
        good, what = check(lab, folders, endstop)
    except Exception:
        good, what = False, traceback.format_exc(limit=3)
    print(f"{client}: {title}: {'good' if good else 'FAULT'}: {what}", file=sys.stderr, flush=True)
    return client, title, good, what


def page(rows, details, wanted, folders, endstop):
    version = subprocess.run([endstop, "--version"], capture_output=True, text=True).stdout.strip()
    lines = ["# Real clients under guard", "",
             f"{datetime.date.today():%d %B %Y}, {version}, against the provider of this folder on the loopback interface. "
             "Written by `run.py`.", "", "| client | version |", "|---|---|"]
    for client in wanted:
        installed = install.version(folders[client.group], client.kind, client.package)
        newest = install.newest(client.kind, client.package)
        note = "" if newest in (None, installed) else f" (the newest is {newest})"
        lines.append(f"| {client} | {installed}{note} |")
    lines += ["", "- untouched: the same task with and without guard gives the same exit status, final text and requests, but "
              "for the fields that `compare.py` lists.",
              "- turns: `--max-turns 2`. dollars: `--max-budget-usd 0.07`. timeout: `--timeout 30s` in a stream that stops. "
              "loop: `--watch stop:stuck`. Ctrl-C: SIGINT while a tool runs.",
              "- calls after: calls that the client made after the stop, which guard answered; none reached the provider.",
              "- seconds: from the last call, the deadline or the signal to the end of guard.", "",
              "| client | case | calls | calls after | seconds | exit | left | ending | agent | as expected |",
              "|---|---|--:|--:|--:|--:|--:|---|---|---|"]
    for row in rows:
        result = row["result"]
        if result is None and not row["faults"]:
            continue
        if result is None:
            lines.append(f"| {row['client']} | {row['case']} | | | | | | | | {cell(row['faults'])} |")
            continue
        agent = (result.outcome or {}).get("agent", {}).get("ended", "")
        calls = sum(bool(request["format"]) for request in result.requests)
        seconds = "" if row["case"] == "untouched" else f"{result.seconds:.1f}"
        lines.append(f"| {row['client']} | {row['case']} | {calls} | {result.told} | {seconds} | {result.status} | "
                     f"{len(result.left)} | `{result.ending}` | {agent} | {cell(row['faults'])} |")
    if details:
        lines += ["", "## One by one", "", "| client | subject | result | |", "|---|---|---|---|"]
        lines += [f"| {client} | {title} | {what} | {'yes' if good else '**no**'} |" for client, title, good, what in details]
    return "\n".join(lines) + "\n"


def cell(faults):
    text = "; ".join(faults).replace("|", "\\|").replace("\n", " ")
    return f"**no**: {text[:300]}" if faults else "yes"


if __name__ == "__main__":
    sys.exit(main())
