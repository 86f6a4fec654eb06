//! The spans and metrics of `endstop run`.

use super::{Got, attributes, collector, endpoint, failed};
use crate::cli::{ANTHROPIC_KEY, Cli, Done, OPENAI_KEY, Refusing, agent_args, answering, playing};
use endstop::testkit::{Reply, Server, Turn};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message as _;
use serde_json::{Value, json};
use std::time::SystemTime;

/// The collector's key, as its header contains it.
const COLLECTOR_KEY: &str = "c0llectorKeyThatMustNeverBeShown";

/// Runs `endstop run` against a server with a collector; `more` are further variables.
fn traced(
    cli: &Cli,
    server: &Server,
    api: &str,
    args: &[&str],
    endpoint: &str,
    env: &[(&str, &str)],
) -> Done {
    let mut command = cli.command(agent_args(server, api, args));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).envs(env.iter().copied());
    crate::cli::Started::new(command, "").finish()
}

/// A series of a metric: its name, its attributes, its number of values, and their sum.
#[derive(Debug)]
struct Series {
    name: String,
    attributes: Value,
    count: u64,
    sum: f64,
}

/// Returns the series of the last report of metrics that a collector got.
fn series(collector: &Server) -> Vec<Series> {
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
    let requests = collector.requests();
    let last = requests.iter().rfind(|request| request.path == "/v1/metrics").unwrap();
    let report = ExportMetricsServiceRequest::decode(last.bytes.as_slice()).unwrap();
    let mut all = Vec::new();
    let scopes = report.resource_metrics.into_iter().flat_map(|one| one.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let mut add = |list: &[KeyValue], count, sum| {
            let attributes = attributes(list).into_iter().collect();
            all.push(Series { name: metric.name.clone(), attributes, count, sum });
        };
        match metric.data.unwrap() {
            Data::Histogram(histogram) => {
                for point in histogram.data_points {
                    add(&point.attributes, point.count, point.sum.unwrap());
                }
            }
            Data::Sum(sum) => {
                assert!(sum.is_monotonic, "{}", metric.name);
                for point in sum.data_points {
                    let Some(Number::AsInt(count)) = point.value else { panic!("{point:?}") };
                    add(&point.attributes, count as u64, count as f64);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

#[test]
fn collector_gets_metrics_of_run() {
    let cli = Cli::new();
    let server = playing([
        Turn::error(503, "{}").header("retry-after", "0"),
        Turn::call("shell", &json!({"command": "echo secret-result"})).usage(40, 9),
        Turn::text("secret-answer").usage(70, 4),
    ]);
    let collector = collector();
    let args = ["secret-task", "--tool", "shell", "--price", "in=1,out=2", "--json"];
    let done = traced(&cli, &server, "openai-chat", &args, &endpoint(&collector), &[]).exits(0);
    assert!(!done.stderr.contains("collector"), "{}", done.stderr);
    let all = series(&collector);
    let address = endpoint(&server);
    let (host, port) = address["http://".len()..].split_once(':').unwrap();
    let run = json!({
        "gen_ai.provider.name": "openai", "gen_ai.request.model": "scripted",
        "endstop.termination": "stop", "endstop.category": "success", "endstop.nested": false,
    });
    let call = |more: Value| {
        let mut call = json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "scripted", "server.address": host,
            "server.port": port.parse::<i64>().unwrap(),
        });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let tool = json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "shell"});
    let class = all.iter().find_map(|one| one.attributes["error.type"].as_str());
    let failed = call(json!({"error.type": class.unwrap()}));
    let (input, output) =
        (json!({"gen_ai.token.type": "input"}), json!({"gen_ai.token.type": "output"}));
    for (name, attributes, count, sum) in [
        ("endstop.runs", &run, 1, Some(1.0)),
        ("gen_ai.invoke_agent.duration", &run, 1, None),
        ("endstop.run.cost", &run, 1, Some(0.000_136)),
        ("gen_ai.client.operation.duration", &call(json!({})), 2, None),
        ("gen_ai.client.operation.duration", &failed, 1, None),
        ("gen_ai.client.token.usage", &call(input), 2, Some(110.0)),
        ("gen_ai.client.token.usage", &call(output), 2, Some(13.0)),
        ("gen_ai.execute_tool.duration", &tool, 1, None),
    ] {
        let found: Vec<&Series> =
            all.iter().filter(|one| one.name == name && one.attributes == *attributes).collect();
        assert_eq!(found.len(), 1, "{name} {attributes}: {all:#?}");
        assert_eq!(found[0].count, count, "{found:?}");
        assert!(found[0].sum > 0.0, "{found:?}");
        assert!(sum.is_none_or(|sum| (found[0].sum - sum).abs() < 1e-12), "{found:?}");
    }
    assert_eq!(all.len(), 8, "{all:#?}");
    for request in collector.requests() {
        assert!(!String::from_utf8_lossy(&request.bytes).contains("secret-"));
    }
}

#[test]
fn unknown_cost_is_not_measured() {
    let cli = Cli::new();
    let server = playing([Turn::text("Paris.").usage(10, 2)]);
    let collector = collector();
    let args = ["Where?", "--max-turns", "0"];
    // Metrics alone, and a run that ends at its limit.
    let env = [("OTEL_TRACES_EXPORTER", "none")];
    traced(&cli, &server, "openai-chat", &args[..1], &endpoint(&collector), &env).exits(0);
    let all = series(&collector);
    assert!(all.iter().any(|one| one.name == "endstop.runs"), "{all:#?}");
    assert!(all.iter().all(|one| one.name != "endstop.run.cost"), "{all:#?}");
    assert!(collector.requests().iter().all(|request| request.path == "/v1/metrics"));
    traced(&cli, &server, "openai-chat", &args, &endpoint(&collector), &env).exits(20);
    let runs = series(&collector).into_iter().find(|one| one.name == "endstop.runs").unwrap();
    assert_eq!(runs.attributes["endstop.termination"], "error_max_turns");
    assert_eq!(runs.attributes["endstop.category"], "capacity");
    assert_eq!(runs.attributes["error.type"], "error_max_turns");
}

#[expect(clippy::disallowed_methods, reason = "spans are in wall time")]
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Asserts that a span has exactly these attributes.
#[track_caller]
fn has(span: &Span, expected: Value) {
    let got: Value = attributes(&span.attributes).into_iter().collect();
    assert_eq!(got, expected, "{}", span.name);
}

#[test]
fn collector_gets_spans_of_run() {
    let ids = |api: &str| match api {
        "anthropic-messages" => ("anthropic", "tool_use", "end_turn"),
        _ => ("openai", "tool_calls", "stop"),
    };
    for api in ["openai-chat", "anthropic-messages"] {
        let cli = Cli::new();
        let server = playing([
            Turn::error(503, "{}").header("retry-after", "0"),
            Turn::call("read_file", &json!({"path": "secret-plan.txt"}))
                .and_call("shell", &json!({"command": "echo secret-result"}))
                .usage(40, 9),
            Turn::text("secret-answer").usage(70, 4),
        ]);
        let collector = collector();
        let began = wall_ns();
        let args = ["secret-task", "--tool", "shell", "--tool", "read_file", "--json"];
        let args =
            [&args[..], &["--system", "secret-system", "--max-output-tokens", "500"]].concat();
        let env = [("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")];
        let done = traced(&cli, &server, api, &args, &endpoint(&collector), &env).exits(0);
        assert!(!done.stderr.contains("collector"), "{}", done.stderr);
        let outcome = done.outcome();
        let (provider, asks, stops) = ids(api);
        let address: Vec<String> =
            endpoint(&server)["http://".len()..].split(':').map(str::to_owned).collect();
        let port: i64 = address[1].parse().unwrap();

        let got = Got::of(&collector);
        let run = got.one("invoke_agent");
        let calls = got.named("chat scripted");
        let names: Vec<&str> = got.spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!((calls.len(), names.len()), (3, 6), "{names:?}");
        assert!(run.parent_span_id.is_empty() && run.trace_id.len() == 16);
        assert!(run.start_time_unix_nano >= began && run.end_time_unix_nano <= wall_ns());
        for span in &got.spans {
            assert_eq!(span.trace_id, run.trace_id);
            let kind =
                if span.name.starts_with("chat") { SpanKind::Client } else { SpanKind::Internal };
            assert_eq!(span.kind(), kind, "{}", span.name);
            if span.span_id != run.span_id {
                assert_eq!(span.parent_span_id, run.span_id, "{}", span.name);
                assert!(span.start_time_unix_nano >= run.start_time_unix_nano, "{}", span.name);
                assert!(span.end_time_unix_nano <= run.end_time_unix_nano, "{}", span.name);
            }
            assert!(span.end_time_unix_nano > span.start_time_unix_nano, "{}", span.name);
            assert!(span.events.is_empty() && span.links.is_empty(), "{span:?}");
        }
        // In the order in which they happened.
        for pair in [calls[0], calls[1], got.one("execute_tool shell"), calls[2]].windows(2) {
            assert!(pair[0].end_time_unix_nano <= pair[1].start_time_unix_nano, "{pair:?}");
        }

        let of_call = |turn: i64, attempt: i64, more: Value| {
            let mut all = json!({
                "gen_ai.operation.name": "chat", "gen_ai.provider.name": provider,
                "gen_ai.request.model": "scripted", "gen_ai.request.max_tokens": 500,
                "gen_ai.request.stream": true, "server.address": address[0],
                "server.port": port, "endstop.turn": turn, "endstop.attempt": attempt,
                "gen_ai.conversation.id": outcome["run_id"],
            });
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let answered = |at: usize, reason: &str, signal: &str, input: i64, output: i64| {
            let told = attributes(&calls[at].attributes);
            // The server chooses these values, so they are compared with those of the response.
            let (id, model) = (&told["gen_ai.response.id"], &told["gen_ai.response.model"]);
            assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{told:?}");
            json!({
                "gen_ai.response.id": id, "gen_ai.response.model": model,
                "gen_ai.response.finish_reasons": [reason], "endstop.signal": signal,
                "gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": output,
            })
        };
        let overloaded = attributes(&calls[0].attributes)["error.type"].clone();
        assert!(overloaded == "server_error" || overloaded == "overloaded", "{overloaded}");
        let cached: Vec<&str> = ["cache_read", "cache_write", "cache_creation", "reasoning"].into();
        let reported = |span: &Span, mut expected: Value| {
            // Usage that the scripted turn of a format reports in addition.
            for (name, value) in attributes(&span.attributes) {
                if cached.iter().any(|part| name.starts_with(&format!("gen_ai.usage.{part}."))) {
                    assert_eq!(value, 0, "{name}");
                    expected[name] = value;
                }
            }
            expected
        };
        has(calls[0], of_call(1, 1, json!({"error.type": overloaded})));
        let expected = of_call(1, 2, answered(1, asks, "tool_use", 40, 9));
        has(calls[1], reported(calls[1], expected));
        let expected = of_call(2, 1, answered(2, stops, "natural_completion", 70, 4));
        has(calls[2], reported(calls[2], expected));
        for (tool, status) in [("read_file", "error"), ("shell", "ok")] {
            let span = got.one(&format!("execute_tool {tool}"));
            let mut expected = json!({
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
                "gen_ai.tool.type": "function", "endstop.tool_status": status,
                "gen_ai.tool.call.id": attributes(&span.attributes)["gen_ai.tool.call.id"],
            });
            if status == "error" {
                expected["error.type"] = json!("error");
            }
            has(span, expected);
            assert_eq!(failed(span), status == "error");
        }
        let mut expected = json!({
            "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": provider,
            "gen_ai.request.model": "scripted", "gen_ai.usage.input_tokens": 110,
            "gen_ai.usage.output_tokens": 13, "endstop.termination": "stop",
            "endstop.category": "success", "endstop.turns": 2, "endstop.model_calls": 3,
            "endstop.tool_calls": 2, "endstop.run_id": outcome["run_id"],
            "gen_ai.conversation.id": outcome["run_id"],
            "endstop.cost_unknown": true,
        });
        assert_eq!(outcome["cost_usd"], Value::Null);
        let by = &outcome["decided_by"];
        let by = format!("{}:{}", by["layer"].as_str().unwrap(), by["name"].as_str().unwrap());
        expected["endstop.decided_by"] = json!(by);
        has(run, reported(run, expected));
        assert!(!failed(run) && failed(calls[0]) && !failed(calls[1]) && !failed(calls[2]));

        assert_eq!(got.resource["service.name"], "endstop");
        assert_eq!(got.resource["deployment.environment.name"], "test");
        assert!(got.scopes.iter().all(|scope| scope == "endstop"), "{:?}", got.scopes);
        for request in collector.requests() {
            let bytes = String::from_utf8_lossy(&request.bytes).into_owned();
            assert!(!bytes.contains("secret-"), "{bytes}");
        }
    }
}

#[test]
fn spans_contain_no_key() {
    let cli = Cli::new();
    let text = format!("{OPENAI_KEY} {ANTHROPIC_KEY} {COLLECTOR_KEY}");
    // A provider that puts a key into values that spans repeat, and a command that looks for one.
    let server = playing([
        Turn::call("shell", &json!({"command": "env; echo seen"})).finish(OPENAI_KEY),
        Turn::text("Done.").finish(&text),
    ]);
    let collector = collector();
    let headers = format!("x-collector-key={COLLECTOR_KEY},authorization=Bearer%20{COLLECTOR_KEY}");
    let env = [("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()), ("OTEL_SERVICE_NAME", "mine")];
    let args = ["Look.", "--tool", "shell", "--json", "--journal", "j.db"];
    let done = traced(&cli, &server, "openai-chat", &args, &endpoint(&collector), &env);
    let got = Got::of(&collector);
    assert_eq!(got.resource["service.name"], "mine");
    // The provider's finish value is there, with the key redacted.
    let calls = got.named("chat scripted");
    let reasons = attributes(&calls[0].attributes)["gen_ai.response.finish_reasons"].clone();
    assert!(reasons[0].as_str().is_some_and(|reason| !reason.is_empty()), "{reasons}");
    assert!(done.stdout.contains("seen"), "{}", done.stdout);
    for request in collector.requests() {
        assert_eq!(request.headers["x-collector-key"], COLLECTOR_KEY);
        assert_eq!(request.headers["authorization"], format!("Bearer {COLLECTOR_KEY}"));
        let bytes = String::from_utf8_lossy(&request.bytes).into_owned();
        for key in [OPENAI_KEY, ANTHROPIC_KEY, COLLECTOR_KEY] {
            assert!(!bytes.contains(key), "{bytes}");
        }
        for (name, value) in request.headers {
            assert!(
                !value.contains(OPENAI_KEY) && !value.contains(ANTHROPIC_KEY),
                "{name}: {value}"
            );
        }
    }
    let kept = std::fs::read(cli.path("j.db")).unwrap();
    let said = format!("{}{}{}", done.stdout, done.stderr, String::from_utf8_lossy(&kept));
    assert!(!said.contains(COLLECTOR_KEY), "{said}");
    for request in server.requests() {
        assert!(!String::from_utf8_lossy(&request.bytes).contains(COLLECTOR_KEY));
    }
}

#[test]
fn failing_collector_does_not_delay_run() {
    let nothing = Refusing::new();
    let gone = format!("http://{}", nothing.address);
    let hangs = answering(|_| Reply::new(200, "text/plain", "x").stall_after(0));
    let broken = answering(|_| Reply::new(500, "text/plain", OPENAI_KEY));
    let (hangs, broken) = (endpoint(&hangs), (endpoint(&broken), broken, hangs));
    let took_longer = "took longer than 3 s";
    for (endpoint, says) in [
        (&gone, "did not reach the collector at 127.0.0.1:"),
        (&hangs, took_longer),
        (&broken.0, "2 spans and metrics did not reach the collector at 127.0.0.1:"),
    ] {
        let cli = Cli::new();
        let server = playing([Turn::text("Paris.")]);
        let with_password = endpoint.replace("http://", "http://user:hunter2@");
        let done = traced(&cli, &server, "openai-chat", &["Where?"], &with_password, &[]).exits(0);
        assert!(done.stdout.contains("Paris."), "{}", done.stdout);
        let lines: Vec<&str> =
            done.stderr.lines().filter(|line| line.contains("collector")).collect();
        assert!(lines.len() == 1 && lines[0].contains(says), "{says}: {}", done.stderr);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
}

#[test]
fn collector_is_asked_at_its_address_alone() {
    // The user and the password of the address are not sent, and its headers go to no other host.
    let (there, cli) = (collector(), Cli::new());
    let away = endpoint(&there);
    let moved = answering(move |_| {
        Reply::new(307, "text/plain", "").header("location", &format!("{away}/v1/traces"))
    });
    let server = playing([Turn::text("Paris."), Turn::text("Paris.")]);
    for (collector, lost) in [(&there, false), (&moved, true)] {
        let with_password = endpoint(collector).replace("http://", "http://user:hunter2@");
        let done = traced(&cli, &server, "openai-chat", &["Where?"], &with_password, &[]).exits(0);
        assert_eq!(done.stderr.contains("it answered with status 307"), lost, "{}", done.stderr);
        let requests = collector.requests();
        assert_eq!(requests.len(), 2, "spans and metrics");
        assert!(requests.iter().all(|request| !request.headers.contains_key("authorization")));
    }
    assert_eq!(there.requests().len(), 2, "no redirect is followed");
}

#[test]
fn spans_need_enabling_variables() {
    let cli = Cli::new();
    let collector = collector();
    let endpoint = endpoint(&collector);
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str());
    for (env, says) in [
        (vec![("OTEL_SERVICE_NAME", "x")], None),
        (vec![base, ("OTEL_SDK_DISABLED", "true")], None),
        (vec![base, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")], None),
        (vec![base, ("OTEL_METRICS_EXPORTER", "prometheus")], Some("otlp, none")),
        (vec![base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], Some("http/protobuf")),
        (vec![base, ("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma")], Some("gzip, none")),
        (vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")], Some("http://HOST:PORT")),
    ] {
        let server = playing([Turn::text("Paris.")]);
        let mut command = cli.command(agent_args(&server, "openai-chat", &["Where?"]));
        command.envs(env.iter().copied());
        let done = crate::cli::Started::new(command, "").finish().exits(0);
        let said = done.stderr.lines().find(|line| line.contains("telemetry is off"));
        assert_eq!(said.is_some(), says.is_some(), "{env:?}: {}", done.stderr);
        assert!(said.unwrap_or_default().contains(says.unwrap_or_default()), "{}", done.stderr);
    }
    assert!(collector.requests().is_empty());
    // A compressed request arrives as well.
    let server = playing([Turn::text("Paris.")]);
    let env = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")];
    traced(&cli, &server, "openai-chat", &["Where?"], &endpoint, &env).exits(0);
    assert_eq!(collector.requests()[0].headers["content-encoding"], "gzip");
}

#[cfg(target_os = "linux")]
#[test]
fn cancelled_run_sends_its_spans() {
    use crate::cli::{Started, eventually};
    let cli = Cli::new();
    let server = answering(|request| Reply::turn(request, &Turn::text("slowly")).stall_after(120));
    let collector = collector();
    let mut command = cli.command(agent_args(&server, "anthropic-messages", &["Go on."]));
    command
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/v1/traces", endpoint(&collector)));
    let started = Started::new(command, "");
    eventually("the model is asked", || server.requests().len() == 1);
    let pid = rustix::process::Pid::from_child(&started.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    started.finish().exits(130);
    let got = Got::of(&collector);
    let (run, call) = (got.one("invoke_agent"), got.one("chat scripted"));
    let of_run = attributes(&run.attributes);
    assert_eq!(of_run["endstop.termination"], "cancelled");
    assert_eq!(of_run["error.type"], "cancelled");
    assert!(of_run["endstop.decided_by"].as_str().unwrap().starts_with("caller:"), "{of_run:?}");
    assert!(failed(run) && !failed(call));
    assert_eq!(attributes(&call.attributes)["endstop.aborted"], true);
    assert_eq!(call.parent_span_id, run.span_id);
}

#[test]
fn content_is_shown_on_request_without_keys() {
    let cli = Cli::new();
    let server = playing([
        Turn::call("shell", &json!({"command": format!("echo {OPENAI_KEY}")})),
        Turn::text("Found."),
    ]);
    let collector = collector();
    let env = [("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")];
    let args = ["Find a key.", "--tool", "shell"];
    traced(&cli, &server, "openai-chat", &args, &endpoint(&collector), &env).exits(0);
    let got = Got::of(&collector);
    let calls = got.named("chat scripted");
    let shown = |span: &Span, name: &str| -> Value {
        let text = attributes(&span.attributes)[name].as_str().unwrap().to_owned();
        serde_json::from_str(&text).unwrap()
    };
    let asked = shown(calls[1], "gen_ai.input.messages");
    let roles: Vec<&str> =
        asked.as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"], "{asked}");
    assert_eq!(asked[0]["parts"][0], json!({"type": "text", "content": "Find a key."}));
    assert_eq!(asked[1]["parts"][0]["arguments"], json!({"command": "echo [redacted]"}));
    assert_eq!(asked[2]["parts"][0]["type"], "tool_call_response");
    let called = shown(calls[0], "gen_ai.output.messages");
    assert_eq!(called[0]["parts"][0]["arguments"], json!({"command": "echo [redacted]"}));
    assert_eq!(called[0]["finish_reason"], "tool_calls");
    let answer = shown(calls[1], "gen_ai.output.messages");
    assert_eq!(answer[0]["parts"], json!([{"type": "text", "content": "Found."}]));
    for request in collector.requests() {
        let bytes = String::from_utf8_lossy(&request.bytes).into_owned();
        assert!(!bytes.contains(OPENAI_KEY), "{bytes}");
    }
}

#[test]
fn run_continues_the_trace_of_its_caller() {
    let collector = collector();
    for (propagators, sends) in [("", false), ("tracecontext,baggage", true)] {
        let (cli, server) = (Cli::new(), playing([Turn::text("Paris.")]));
        let env = [("TRACEPARENT", super::PLACE), ("OTEL_PROPAGATORS", propagators)];
        traced(&cli, &server, "openai-chat", &["Where?"], &endpoint(&collector), &env).exits(0);
        let got = Got::of(&collector);
        let (run, call) =
            (got.named("invoke_agent").pop().unwrap(), got.named("chat scripted").pop().unwrap());
        assert_eq!(super::hex(&run.trace_id), super::PLACE[3..35]);
        assert_eq!(super::hex(&run.parent_span_id), super::PLACE[36..52]);
        let place = format!("00-{}-{}-01", super::hex(&call.trace_id), super::hex(&call.span_id));
        let sent = server.requests()[0].headers.get("traceparent").cloned();
        assert_eq!(sent, sends.then_some(place), "{propagators}");
    }
}

#[test]
fn spans_that_a_full_queue_drops_are_counted() {
    let cli = Cli::new();
    let turns = (0..9).map(|at| Turn::call("shell", &json!({"command": format!("echo {at}")})));
    let server = playing(turns.chain([Turn::text("Done.")]).collect::<Vec<_>>());
    let slow = answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(400));
        Reply::new(200, "application/x-protobuf", Vec::new())
    });
    let env = [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    let args = ["Go.", "--tool", "shell"];
    let done = traced(&cli, &server, "openai-chat", &args, &endpoint(&slow), &env).exits(0);
    let line = done.stderr.lines().find(|line| line.contains("collector")).unwrap_or_default();
    let lost: usize =
        line.split(' ').find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let arrived = Got::of(&slow).spans.len();
    assert!(line.contains("they came faster than it takes them"), "{line}");
    assert_eq!(arrived + lost, 20, "ten calls, nine tools, one run: {line}");
}
