"""Compares the cost that `endstop guard` reports with an independent computation.

    python3 -m venv VENV && VENV/bin/pip install genai-prices==0.2.1
    VENV/bin/python bench/guard/costs.py RECORDINGS --endstop target/debug/endstop [--out FILE]

Recorded exchanges are grouped into runs of several calls, and replayed through the standing proxy: its upstreams
are the providers' own host names, and HTTP_PROXY leads to a server on loopback that answers with the recorded
bodies. The other side of the comparison does not use Endstop's code or table: it reads the raw bodies, and prices
them with the Python package `genai-prices` in exact decimal arithmetic. A cost that the provider reports in the body
is its bill. Runs whose name ends in `*` are derived: the usage of recorded bodies is edited, because the recordings
lack long prompts and service tiers. The status is 1 if a run differs by more than rounding, or lacks a mark.
"""
import argparse
import decimal
import http.client
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from decimal import Decimal

import costs_cases
import costs_list

NANO = Decimal("0.000000001")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings")
    parser.add_argument("--endstop", default="endstop")
    parser.add_argument("--provider", help="only this one")
    parser.add_argument("--out")
    options = parser.parse_args()
    decimal.getcontext().prec = 60
    rows = []
    for place in costs_cases.PLACES:
        if options.provider in (None, place.name):
            runs = costs_cases.runs(place, pathlib.Path(options.recordings))
            if runs:
                rows += compare(place, runs, os.path.abspath(options.endstop))
    text = page(rows)
    if options.out:
        pathlib.Path(options.out).write_text(text)
    print(text)
    return 1 if any(row["fault"] for row in rows) else 0


def compare(place, runs, endstop):
    """Replays the runs of one provider, and returns a row for each."""
    outcomes = replay(place, runs, endstop)
    rows = []
    for name, calls in runs.items():
        bills = [costs_list.bill(place, call) for call in calls]
        theirs = sum((bill.usd for bill in bills), Decimal(0))
        # Each call is rounded up to a nano-dollar, so that a sum is never below the bill.
        rounded = sum((ceil(bill.usd) for bill in bills), Decimal(0))
        outcome = outcomes.get(name)
        row = {"run": name, "format": place.name, "calls": len(calls), "theirs": theirs, "marks": marks(bills)}
        if outcome is None:
            row |= {"ours": Decimal("NaN"), "fault": "no outcome"}
        else:
            ours = Decimal(repr(outcome["cost_usd"])).quantize(NANO)
            row |= {"ours": ours, "fault": fault(ours, theirs, rounded, bills, outcome, len(calls))}
        rows.append(row)
    return rows


def ceil(usd):
    return usd.quantize(NANO, rounding=decimal.ROUND_CEILING)


def marks(bills):
    found = {mark for bill in bills for mark in bill.marks}
    if any(bill.by_hour for bill in bills):
        found.add("dearest hour")
    if any(bill.reported for bill in bills):
        found.add("reported by the provider")
    return sorted(found)


def fault(ours, theirs, rounded, bills, outcome, calls):
    if not all(bill.counted for bill in bills):
        # Without a usage report there is nothing to compare, but the cost must not pass for known.
        return "" if outcome["cost_unknown"] else "not marked"
    exact = all(not bill.reported for bill in bills)
    if abs(ours - rounded) > (Decimal(0) if exact else NANO * calls / 2):
        return f"differs by {ours - rounded:+}"
    if exact and not Decimal(0) <= ours - theirs < NANO * calls:
        return "is not rounded up"
    marked = any(bill.marks for bill in bills)
    if marked != outcome["cost_unknown"]:
        return "not marked" if marked else "marked"
    bounded = all(bill.at_most or not bill.marks for bill in bills)
    if bounded != (outcome["cost_upper_usd"] is not None):
        return "has no upper bound" if bounded else "has an upper bound"
    return ""


def replay(place, runs, endstop):
    """Sends the calls of all runs through a standing proxy, and returns the outcomes by run."""
    exchanges = {f"{name}/{number}": call for name, calls in runs.items() for number, call in enumerate(calls)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(exchanges))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "guard.toml")
        with open(config, "w") as file:
            file.write(f'allow_http = true\nstate = "{folder}/spent.json"\n')
            file.write(f'[upstream]\n{place.upstream} = "{place.base}"\n')
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "XDG_RUNTIME_DIR": folder,
                       "HTTP_PROXY": f"http://127.0.0.1:{server.server_port}"}
        guard = subprocess.Popen([endstop, "guard", "--listen", "127.0.0.1:0", "--config", config, "--json"],
                                 stdout=subprocess.PIPE, env=environment, cwd=folder, text=True)
        try:
            address = listening(guard)
            for name, calls in runs.items():
                for number, call in enumerate(calls):
                    send(address, name, f"{name}/{number}", call)
            guard.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in guard.communicate(timeout=120)[0].splitlines()]
        finally:
            guard.kill()
            server.shutdown()
    # One call at a time was sent, so the runs started in this order.
    started = [line["run_id"] for line in lines if line["type"] == "run_started"]
    names = dict(zip(started, runs, strict=True))
    return {names[line["run_id"]]: line for line in lines if line["type"] == "outcome"}


def listening(guard):
    for line in guard.stdout:
        line = json.loads(line)
        if line.get("type") == "listening":
            return line["address"]
    raise SystemExit("endstop guard did not start")


def send(address, run, exchange, call):
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    headers = {"content-type": "application/json", "x-exchange": exchange, "authorization": "Bearer sk-none"}
    connection.request("POST", f"/run/{run.removesuffix('*')}{call.path}", json.dumps(call.request), headers)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200 or body != call.body:
        raise SystemExit(f"{exchange}: HTTP {response.status}: {body[:300]!r}")
    connection.close()


def handler(exchanges):
    class Upstream(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            call = exchanges[self.headers["x-exchange"]]
            self.send_response(200)
            self.send_header("content-type", call.content_type)
            self.send_header("content-length", str(len(call.body)))
            self.end_headers()
            self.wfile.write(call.body)

        def do_CONNECT(self):
            # What follows on this connection is the call itself, in clear text.
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    return Upstream


def page(rows):
    lines = ["# Costs of guarded runs and of the price list", "", "Written by `costs.py`; its first lines say how.", "",
             "| run | format | calls | ours, USD | theirs, USD | difference | marks |", "|---|---|--:|--:|--:|--:|---|"]
    for row in rows:
        difference = row["ours"] - row["theirs"]
        text = row["marks"] + ([f"**{row['fault']}**"] if row["fault"] else [])
        lines.append(f"| {row['run']} | {row['format']} | {row['calls']} | {row['ours']:f} | {plain(row['theirs'])} | "
                     f"{plain(difference)} | {', '.join(text)} |")
    uncounted = {"no usage", "incomplete usage", "fee per request", "cached beyond the prompt"}
    compared = [row for row in rows if not uncounted & set(row["marks"]) and not row["ours"].is_nan()]
    differences = [abs(row["ours"] - row["theirs"]) for row in compared]
    beyond = sum(difference > NANO for difference in differences)
    lines += ["", f"{len(rows)} runs, {sum(row['calls'] for row in rows)} calls, of which "
              f"{sum(row['calls'] for row in rows if row['run'].endswith('*'))} derived. {len(compared)} runs could be "
              f"compared: the largest difference is {plain(max(differences, default=Decimal(0)))} USD, and {beyond} "
              f"differ by more than 1e-9. The others have a call without a complete usage or a price, and are marked. "
              f"{sum(bool(row['marks']) for row in rows)} runs have marks. "
              f"Faults: {sum(bool(row['fault']) for row in rows)}."]
    return "\n".join(lines) + "\n"


def plain(number):
    return f"{number.normalize():f}" if number == number else "-"


if __name__ == "__main__":
    sys.exit(main())
