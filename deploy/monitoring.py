"""Asks a real Prometheus each query of the dashboard, under a load of guarded, served and own runs.

    python3 deploy/monitoring.py --endstop target/debug/endstop [--runs 1000]

It starts a scripted provider, `endstop guard --listen`, `endstop serve`, runs of the command that report by OTLP, and
Prometheus, all on loopback, and fails if a panel has no data or an alert rule is not valid. It needs `prometheus` and
`promtool` (Debian: `apt install prometheus`); the panels of OTLP also the Python package `opentelemetry-proto`.
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
except ImportError:
    ExportMetricsServiceRequest = None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"} | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
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
    lock = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/metrics" and ExportMetricsServiceRequest is not None:
            request = ExportMetricsServiceRequest()
            request.ParseFromString(body)
            with self.lock:
                for resource in request.resource_metrics:
                    self.take(resource)
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


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Any:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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


def guarded(port: int, run: int) -> None:
    """The calls of a run, until it has an answer or is stopped."""
    tools = [{"type": "function", "function": {"name": "work", "parameters": {}}}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": str(run)}]
    url = f"http://127.0.0.1:{port}/run/run-{run}/v1/chat/completions"
    for _ in range(6):
        asked = {"model": "gpt-4o", "messages": messages, "tools": tools}
        status, body = ask(url, asked, {"authorization": "Bearer x"})
        answer = json.loads(body)["choices"][0]["message"] if status == 200 else {}
        if not answer.get("tool_calls"):
            return
        messages += [answer, {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "same"}]


def load(endstop: Path, folder: Path, guard: int, serve: int, collector: int, runs: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        first = time.monotonic_ns() // 1000 % 10**12
        list(pool.map(lambda run: guarded(guard, first + run), range(runs)))
    for task in ("fix", "loop", "cut", "filtered", "approve") * 4:
        ask(f"http://127.0.0.1:{serve}/v1/runs", {"agent": "demo", "task": task})
    ask(f"http://127.0.0.1:{serve}/v1/runs", {"agent": "unknown", "task": "x"})
    for task in ("fix", "loop", "cut"):
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
            "HOME": str(folder),
        }
        command = [endstop, "demo", task]
        subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


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
             f"127.0.0.1:{metrics}", "--journal", "off"],
            [endstop, "serve", "--listen", f"127.0.0.1:{serve}", "--park-after", "1s", "--journal", "serve.db"],
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
             f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn"],
        ]  # fmt: skip
        log = stack.enter_context((folder / "log").open("w"))
        for command, url in zip(
            commands,
            (f"{metrics}/metrics", f"{serve}/healthz", f"{prometheus}/-/ready"),
            strict=True,
        ):
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_for(f"http://127.0.0.1:{url}", process)
        # Counters begin with a first scrape, so that the load is an increase.
        ask(f"http://127.0.0.1:{guard}/v1/responses", [])
        load(endstop, folder, guard, serve, collector, 12)
        time.sleep(5)
        started = time.monotonic()
        load(endstop, folder, guard, serve, collector, given.runs)
        print(f"{given.runs} guarded runs in {time.monotonic() - started:.0f} s")
        queries = targets()
        missing = dict.fromkeys(queries)
        for _ in range(30):
            # Rates need two scrapes.
            load(endstop, folder, guard, serve, collector, 12)
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
        lost = [one for one in missing if ExportMetricsServiceRequest is not None or not one[0].startswith("Runs:")]
        for title, query in lost:
            print(f"no data: {title}: {query}")
        if lost:
            print((folder / "log").read_text()[-2000:])
            sys.exit(1)


if __name__ == "__main__":
    main()
