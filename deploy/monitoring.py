"""Asks a real Prometheus each query of the dashboard, under a load of guarded, served and own runs.

    python3 deploy/monitoring.py --endstop target/debug/endstop [--runs 1000]

It starts a scripted provider, `endstop guard --listen`, `endstop serve` and runs of the command, which all report by
OTLP, and Prometheus, all on loopback. It fails if a panel has no data, if an alert rule is not valid, or if a guarded or
served run that has ended has not exactly one span, with the reason of its end, below the `traceparent` of its client. It
needs `prometheus` and `promtool` (Debian: `apt install prometheus`); what comes by OTLP also the Python package
`opentelemetry-proto`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
try:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError:
    ExportMetricsServiceRequest = ExportTraceServiceRequest = None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"} | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Provider(BaseHTTPRequestHandler):
    """Answers the first call of a run with a tool call, and the second with a text, cut in one run of four. One run of
    ten gets the same call for ever."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body["messages"]
        run = int(messages[0]["content"])
        message: dict[str, Any] = {"role": "assistant", "content": "done"}
        finish = "length" if run % 4 == 0 else "stop"
        if len(messages) == 1 or run % 10 == 0:
            call = {"id": f"call-{len(messages)}", "type": "function", "function": {"name": "work", "arguments": "{}"}}
            message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = json.dumps({"id": "c", "object": "chat.completion", "model": "gpt-4o", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_: Any) -> None:
        pass


class Collector(BaseHTTPRequestHandler):
    """Takes deltas by OTLP, sums them over all processes, and shows the sums to Prometheus under the names of
    OpenTelemetry's specification for it."""

    series: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    # A batch whose answer was late is sent again, with the same ids.
    ids: set[bytes] = set()
    repeated = 0
    # The spans of each service, by the first word of their names.
    spans: defaultdict[tuple[str, str], int] = defaultdict(int)
    # The spans of each run: its ending, and the place of its parent.
    runs: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    lock = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/metrics" and ExportMetricsServiceRequest is not None:
            request = ExportMetricsServiceRequest()
            request.ParseFromString(body)
            with self.lock:
                for resource in request.resource_metrics:
                    self.take(resource)
        if self.path == "/v1/traces" and ExportTraceServiceRequest is not None:
            traces = ExportTraceServiceRequest()
            traces.ParseFromString(body)
            with self.lock:
                for resource in traces.resource_spans:
                    named = {one.key: one.value.string_value for one in resource.resource.attributes}
                    for span in (span for scope in resource.scope_spans for span in scope.spans):
                        if span.span_id in self.ids:
                            type(self).repeated += 1
                            continue
                        self.ids.add(span.span_id)
                        kind = span.name.split()[0]
                        self.spans[named["service.name"], kind] += 1
                        if kind == "invoke_agent":
                            shown = {one.key: one.value.string_value for one in span.attributes}
                            parent = f"00-{span.trace_id.hex()}-{span.parent_span_id.hex()}-01"
                            # A run that has been parked has another span of what it did before, without an ending.
                            if ending := shown.get("endstop.termination"):
                                self.runs[shown["endstop.run_id"]].append((ending, parent))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def take(self, resource: Any) -> None:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
            for point in metric.sum.data_points:
                self.put(f"{name}_total", point, point.as_int or point.as_double)
            for point in metric.histogram.data_points:
                self.put(f"{name}_sum", point, point.sum)
                self.put(f"{name}_count", point, point.count)
                total = 0
                for at, count in enumerate(point.bucket_counts):
                    total += count
                    bound = str(point.explicit_bounds[at]) if at < len(point.explicit_bounds) else "+Inf"
                    self.put(f"{name}_bucket", point, total, le=bound)

    def put(self, name: str, point: Any, value: float, **labels: str) -> None:
        for one in point.attributes:
            kind = one.value.WhichOneof("value")
            text = str(getattr(one.value, kind)) if kind else ""
            labels[one.key.replace(".", "_")] = text.lower() if kind == "bool_value" else text
        self.series[name, tuple(sorted(labels.items()))] += value

    def do_GET(self) -> None:
        with self.lock:
            lines = [
                f"{name}{{{','.join(f'{label}={json.dumps(text)}' for label, text in labels)}}} {value}"
                for (name, labels), value in self.series.items()
            ]
        text = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    # Python's five drop connections under load, which are tried again after seconds.
    request_queue_size = 256


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Any:
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            if ask(url)[0] < 500:
                return
        if process.poll() is not None:
            sys.exit(f"{process.args}: ended with {process.returncode}")
        time.sleep(0.1)
    sys.exit(f"{url} did not answer")


def place(number: int) -> str:
    """A `traceparent` that no other run has."""
    return f"00-{number:032x}-{number:016x}-01"


def guarded(port: int, run: int) -> None:
    """The calls of a run, until it has an answer or is stopped."""
    tools = [{"type": "function", "function": {"name": "work", "parameters": {}}}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": str(run)}]
    url = f"http://127.0.0.1:{port}/run/run-{run}/v1/chat/completions"
    for _ in range(6):
        asked = {"model": "gpt-4o", "messages": messages, "tools": tools}
        status, body = ask(url, asked, {"authorization": "Bearer x", "traceparent": place(run)})
        answer = json.loads(body)["choices"][0]["message"] if status == 200 else {}
        if not answer.get("tool_calls"):
            return
        messages += [answer, {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "same"}]


def load(endstop: Path, folder: Path, guard: int, serve: int, collector: int, runs: int) -> dict[str, str]:
    """Returns the `traceparent` of each run: by its name if it is guarded, and by its id if it is served."""
    first = time.monotonic_ns() // 1000 % 10**12
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda run: guarded(guard, first + run), range(runs)))
    places = {f"run-{first + run}": place(first + run) for run in range(runs)}
    for number, task in enumerate(("fix", "loop", "cut", "filtered", "approve") * 4, first + runs):
        asked = {"agent": "demo", "task": task}
        _, body = ask(f"http://127.0.0.1:{serve}/v1/runs", asked, {"traceparent": place(number)})
        places[json.loads(body)["run_id"]] = place(number)
    ask(f"http://127.0.0.1:{serve}/v1/runs", {"agent": "unknown", "task": "x"})
    for task in ("fix", "loop", "cut"):
        environment = os.environ | reports(collector, "endstop") | {"HOME": str(folder)}
        command = [endstop, "demo", task]
        subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return places


def reports(collector: int, service: str) -> dict[str, str]:
    """The variables with which a command reports by OTLP."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        "OTEL_BSP_SCHEDULE_DELAY": "500",
        "OTEL_SERVICE_NAME": service,
    }


def targets() -> list[tuple[str, str]]:
    """The title of each panel with each of its queries, as Grafana would ask for them."""
    dashboard = json.loads((HERE / "grafana-dashboard.json").read_text())
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m")
            assert "$" not in re.sub(r"\$\$", "", query), f"{panel['title']}: a variable that this check does not know"
            found.append((panel["title"], query))
    return found


def answers(prometheus: int, query: str) -> list[Any]:
    quoted = urllib.parse.urlencode({"query": query})
    status, body = ask(f"http://127.0.0.1:{prometheus}/api/v1/query?{quoted}")
    if status != 200:
        sys.exit(f"{query}: {body.decode()}")
    return [one for one in json.loads(body)["data"]["result"] if one["value"][1] != "NaN"]


def endings(outcomes: Path, serve: int, places: dict[str, str]) -> dict[str, dict[str, tuple[str, str]]]:
    """What the span of each run must show, as guard and serve report its end: by the service, then by the run."""
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    ids = {line["name"]: line["run_id"] for line in lines if line["type"] == "run_started"}
    ended = {line["name"]: line["termination"] for line in lines if line["type"] == "outcome"}
    names = [name for name in places if name in ended]
    expected = {"endstop-guard": {ids[name]: (ended[name], places[name]) for name in names}, "endstop-serve": {}}
    for run in (run for run in places if not run.startswith("run-")):
        shown = json.loads(ask(f"http://127.0.0.1:{serve}/v1/runs/{run}")[1])
        if shown["state"] == "ended":
            expected["endstop-serve"][run] = (shown["outcome"]["termination"], places[run])
    return expected


def spans_of_runs(outcomes: Path, serve: int, places: dict[str, str]) -> bool:
    """Waits until the guarded runs have ended, which is seen two seconds after their last calls, and their spans came."""
    guarded_runs = sum(name.startswith("run-") for name in places)
    for _ in range(120):
        expected = endings(outcomes, serve, places)
        with Collector.lock:
            spans, runs = dict(Collector.spans), {run: list(found) for run, found in Collector.runs.items()}
        if len(expected["endstop-guard"]) == guarded_runs and all(run in runs for of in expected.values() for run in of):
            break
        time.sleep(0.5)
    for (service, name), count in sorted(spans.items()):
        print(f"spans of {service}: {count} {name}")
    print(f"spans that were sent again: {Collector.repeated}")
    good = len(expected["endstop-guard"]) == guarded_runs and ("endstop", "invoke_agent") in spans
    for service, of in expected.items():
        found = {run: runs.get(run, []) for run in of}
        lost = sum(not one for one in found.values())
        twice = sum(len(one) > 1 for one in found.values())
        wrong = [run for run, one in found.items() if len(one) == 1 and one[0] != of[run]]
        print(f"{service}: {len(of)} ended runs; spans: {lost} lost, {twice} twice, {len(wrong)} with another ending or parent")
        for run in wrong[:3]:
            print(f"{run}: expected {of[run]}, got {found[run][0]}")
        good = good and bool(of) and not (lost or twice or wrong)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endstop", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        print("skipped: prometheus and promtool were not found")
        return
    for command in (["check", "rules", "prometheus-alerts.yml"], ["test", "rules", "prometheus-alerts.test.yml"]):
        subprocess.run(["promtool", *command], cwd=HERE, check=True)
    endstop = given.endstop.resolve()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider, collector = (stack.enter_context(serving(kind)) for kind in (Provider, Collector))
        guard, metrics, serve, prometheus = (free_port() for _ in range(4))
        (folder / "guard.toml").write_text(
            f'idle_after = "2s"\nallow_http = true\n[upstream]\nopenai = "http://127.0.0.1:{provider}/v1"\n'
            '[profile.default]\nlimits = { max_turns = 50, max_budget_usd = 2.0 }\n'
            'watch = [{ mode = "stop", rule = "stuck" }]\n'
        )
        (folder / "guard.toml").chmod(0o600)
        jobs = {"endstop-guard": metrics, "endstop-serve": serve, "endstop-runs": collector}
        (folder / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(HERE / "prometheus-alerts.yml")],
                    "scrape_configs": [
                        {
                            "job_name": name,
                            "metrics_path": "/metrics",
                            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                        }
                        for name, port in jobs.items()
                    ],
                }
            )
        )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
        }
        commands = [
            [endstop, "guard", "--listen", f"127.0.0.1:{guard}", "--config", "guard.toml", "--metrics",
             f"127.0.0.1:{metrics}", "--journal", "off", "--json"],
            [endstop, "serve", "--listen", f"127.0.0.1:{serve}", "--park-after", "1s", "--journal", "serve.db"],
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
             f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn"],
        ]  # fmt: skip
        log, outcomes = (stack.enter_context((folder / name).open("w")) for name in ("log", "outcomes"))
        for command, url in zip(
            commands,
            (f"{metrics}/metrics", f"{serve}/healthz", f"{prometheus}/-/ready"),
            strict=True,
        ):
            own = environment | reports(collector, f"endstop-{command[1]}") if command[0] == endstop else environment
            out = outcomes if command[1] == "guard" else log
            process = subprocess.Popen(command, cwd=folder, env=own, stdout=out, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_for(f"http://127.0.0.1:{url}", process)
        # Counters begin with a first scrape, so that the load is an increase.
        ask(f"http://127.0.0.1:{guard}/v1/responses", [])
        places = load(endstop, folder, guard, serve, collector, 12)
        time.sleep(5)
        started = time.monotonic()
        places |= load(endstop, folder, guard, serve, collector, given.runs)
        print(f"{given.runs} guarded runs in {time.monotonic() - started:.0f} s")
        queries = targets()
        missing = dict.fromkeys(queries)
        for _ in range(30):
            # Rates need two scrapes.
            places |= load(endstop, folder, guard, serve, collector, 12)
            missing = {one: None for one in missing if not answers(prometheus, one[1])}
            if not missing:
                break
            time.sleep(1)
        by_panel = defaultdict(list)
        for title, query in queries:
            by_panel[title].append((title, query) not in missing)
        for title, found in by_panel.items():
            without = ExportMetricsServiceRequest is None and title.startswith("Runs:")
            print(f"{title}: {sum(found)} of {len(found)} queries have data{' (skipped)' if without else ''}")
        whole = ExportTraceServiceRequest is None or spans_of_runs(folder / "outcomes", serve, places)
        lost = [one for one in missing if ExportMetricsServiceRequest is not None or not one[0].startswith("Runs:")]
        for title, query in lost:
            print(f"no data: {title}: {query}")
        if lost or not whole:
            print((folder / "log").read_text()[-2000:])
            sys.exit(1)


if __name__ == "__main__":
    main()
