"""Runs real agent programs under `endstop guard`, and writes what happened as tables, with the rows that
`terminal.py` has left in the lab.

    python3 bench/guard/run.py LAB --endstop target/release/endstop [--client NAME]... [--case NAME]... [--out FILE]

LAB is a folder outside the repository, which can be empty: the clients are installed there. Their keys
are planted, their home is inside, and only the loopback interface is used. The status is 1 if anything
differs from what is expected.
"""
import argparse
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import install
import terminal
from cases import CASES
from clients import CLIENTS, KEY
from details import DETAILS
from results import Results


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
    results = Results(lab, endstop)
    folders = install.all_groups(lab)
    wanted = [client for client in CLIENTS if folders[client.group] and
              any(part.lower() in client.name.lower() for part in options.client or [""])]
    cases = [name for name in CASES if name in (options.case or CASES)]
    with ThreadPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(all_of, lab, client, folders, results, cases) for client in wanted]
        if not options.case or "details" in options.case:
            jobs += [pool.submit(detail, check, lab, folders, results) for check in DETAILS
                     if any(check.about[0] == client.name for client in wanted)]
        [job.result() for job in jobs]
    return page(results, folders, options.out)


def page(results, folders, out):
    """Writes the page of all rows of the lab. Returns the exit status."""
    keys = [(client.name, case) for client in CLIENTS for case in CASES]
    text, good = results.page([(client, version(client, folders)) for client in CLIENTS], keys,
                              [check.about for check in DETAILS], terminal.KEYS)
    if out:
        with open(out, "w") as file:
            file.write(text)
    else:
        print(text)
    return 0 if good else 1


def all_of(lab, client, folders, results, cases):
    for case in cases:
        attempt(lab, client, folders[client.group], results, case)


def attempt(lab, client, folder, results, case):
    try:
        result, faults = CASES[case](lab, client, folder, results.endstop)
    except Exception:
        result, faults = None, [traceback.format_exc(limit=3)]
    if result is None and not faults:
        return
    if result:
        # A key may be in the client's own files, but never in what guard says.
        faults += ["the key is in the output"] if KEY in result.err else []
        faults += [f"left: {line}" for line in result.left]
    row = results.put("cases", (client.name, case), cells(case, result) if result else [""] * 7, faults)
    print(" | ".join(row["cells"]), file=sys.stderr, flush=True)


def cells(case, result):
    agent = (result.outcome or {}).get("agent", {}).get("ended", "")
    calls = sum(bool(request["format"]) for request in result.requests)
    seconds = "" if case == "untouched" else f"{result.seconds:.1f}"
    return [str(calls), str(result.told), seconds, str(result.status), str(len(result.left)), f"`{result.ending}`", agent]


def detail(check, lab, folders, results):
    try:
        good, what = check(lab, folders, results.endstop)
    except Exception:
        good, what = False, traceback.format_exc(limit=3)
    row = results.put("details", check.about, [what.replace("|", "\\|").replace("\n", " ")], [] if good else ["see the result"])
    print(" | ".join(row["cells"]), file=sys.stderr, flush=True)


def version(client, folders):
    if folders[client.group] is None:
        return f"cannot be installed: {install.REASONS[client.group]}"
    installed = install.version(folders[client.group], client.kind, client.package)
    newest = install.newest(client.kind, client.package)
    return installed if newest in (None, installed) else f"{installed} (the newest is {newest})"


if __name__ == "__main__":
    sys.exit(main())
