//! The spans of guarded runs: of one program, and of a standing proxy.

use super::{Got, PLACE, attributes, collector, endpoint, failed, hex};
use crate::cli::{Cli, OPENAI_KEY, Started, answering, eventually, playing};
use crate::guard;
use crate::guard_listen::{Listening, command, file, server};
use endstop::testkit::{Reply, Server, Turn};
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PROFILE: &str = "[profile.default]\nlimits = { max_turns = 2 }\nprice = \"in=1,out=2\"\n";

/// Starts a standing proxy whose environment names a collector.
fn listening(cli: &Cli, file: &str, endpoint: &str, env: &[(&str, &str)]) -> Listening {
    cli.write("guard.toml", file);
    let args = ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--json"];
    let mut command = command(cli, args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).envs(env.iter().copied());
    Listening::of(command)
}

fn sent_places(server: &Server) -> Vec<Option<String>> {
    let requests = server.requests();
    requests.iter().map(|request| request.headers.get("traceparent").cloned()).collect()
}

fn shown(span: &Span, name: &str) -> Value {
    attributes(&span.attributes).get(name).cloned().unwrap_or_default()
}

#[test]
fn standing_guard_sends_spans_of_its_runs() {
    let (cli, server, collector) = (Cli::new(), server(), collector());
    let proxy = listening(&cli, &file(&server, PROFILE), &endpoint(&collector), &[]);
    let place = format!("traceparent: {PLACE}\r\n");
    let statuses = [1, 2, 3].map(|turn| proxy.turn("a", turn, &place).0);
    assert_eq!(statuses[..2], [200, 200]);
    proxy.turn("b", 1, "");
    let done = proxy.stop(Signal::TERM).exits(143);
    assert!(!done.stderr.contains("collector"), "{}", done.stderr);
    let got = Got::of(&collector);
    let runs = got.named("invoke_agent default");
    let calls = got.named("chat m");
    assert_eq!((runs.len(), calls.len(), got.spans.len()), (2, 3, 5), "{:#?}", got.spans);
    let (first, other) = (runs[0], runs[1]);
    assert_eq!(hex(&first.trace_id), PLACE[3..35]);
    assert_eq!(hex(&first.parent_span_id), PLACE[36..52]);
    assert!(other.parent_span_id.is_empty() && other.trace_id != first.trace_id);
    assert!(failed(first));
    let usage = attributes(&calls[0].attributes);
    let total = |name: &str| usage[name].as_i64().unwrap() * 2;
    for (name, value) in [
        ("endstop.termination", json!("error_max_turns")),
        ("endstop.category", json!("capacity")),
        ("endstop.turns", json!(2)),
        ("endstop.model_calls", json!(2)),
        ("gen_ai.agent.name", json!("default")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!("m")),
        ("gen_ai.conversation.id", shown(first, "endstop.run_id")),
        ("gen_ai.usage.input_tokens", json!(total("gen_ai.usage.input_tokens"))),
        ("gen_ai.usage.output_tokens", json!(total("gen_ai.usage.output_tokens"))),
    ] {
        assert_eq!(shown(first, name), value, "{name}");
    }
    let mut cost = 0.0;
    for (at, call) in calls[..2].iter().enumerate() {
        assert_eq!((&call.parent_span_id, &call.trace_id), (&first.span_id, &first.trace_id));
        assert_eq!(hex(&call.links[0].span_id), PLACE[36..52]);
        for (name, value) in [
            ("gen_ai.operation.name", json!("chat")),
            ("endstop.thread", json!("main")),
            ("endstop.turn", json!(at + 1)),
            ("endstop.signal", json!("tool_use")),
            ("gen_ai.response.finish_reasons", json!(["tool_calls"])),
            ("server.address", json!("127.0.0.1")),
        ] {
            assert_eq!(shown(call, name), value, "{name}");
        }
        cost += shown(call, "endstop.cost_usd").as_f64().unwrap();
        assert!(!failed(call));
    }
    assert!((shown(first, "endstop.cost_usd").as_f64().unwrap() - cost).abs() < 1e-12);
    // The upstream gets the place of the call instead of the client's, and none without one.
    let of = |call: &Span| Some(format!("00-{}-{}-01", hex(&call.trace_id), hex(&call.span_id)));
    assert_eq!(sent_places(&server), [of(calls[0]), of(calls[1]), None]);
    for request in collector.requests() {
        assert!(!String::from_utf8_lossy(&request.bytes).contains("Go."), "no content");
    }
}

#[test]
fn content_of_guarded_calls_has_no_key_of_the_client() {
    const KEY: &str = "client-key-Zk04dQ71mmPx8Lw2";
    let (cli, collector) = (Cli::new(), collector());
    let server =
        answering(|request| Reply::turn(request, &Turn::text(format!("Your key is {KEY}."))));
    let env = [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ("OTEL_PROPAGATORS", "tracecontext"),
    ];
    let proxy = listening(&cli, &file(&server, PROFILE), &endpoint(&collector), &env);
    proxy.turn("a", 1, &format!("authorization: Bearer {KEY}\r\n"));
    proxy.stop(Signal::TERM).exits(143);
    let got = Got::of(&collector);
    let call = got.one("chat m");
    let json = |name: &str| -> Value {
        serde_json::from_str(shown(call, name).as_str().unwrap()).unwrap()
    };
    let asked = json("gen_ai.input.messages");
    assert_eq!(asked, json!([{"role": "user", "parts": [{"type": "text", "content": "Go."}]}]));
    let answer = json("gen_ai.output.messages");
    assert_eq!(answer[0]["parts"][0]["content"], "Your key is [redacted].", "{answer}");
    assert!(sent_places(&server)[0].as_ref().unwrap().contains(&hex(&call.span_id)));
    for request in collector.requests() {
        assert!(!String::from_utf8_lossy(&request.bytes).contains(KEY));
    }
}

#[test]
fn guarded_program_is_a_span_of_its_caller() {
    let (cli, collector) = (Cli::new(), collector());
    let server = playing([Turn::call("work", &json!({})).usage(40, 9), Turn::text("Done.")]);
    let mut command = guard::guarded(&cli, &server, &["--max-turns", "9"], "a result");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint(&collector)).env("TRACEPARENT", PLACE);
    let done = Started::new(command, "").finish().exits(0);
    let outcome = guard::outcome(&done);
    let got = Got::of(&collector);
    let (run, calls) = (got.one("invoke_agent"), got.named("chat gpt-4o"));
    assert_eq!(hex(&run.trace_id), PLACE[3..35]);
    assert_eq!(hex(&run.parent_span_id), PLACE[36..52]);
    assert_eq!(shown(run, "endstop.run_id"), outcome["run_id"]);
    assert_eq!(shown(run, "endstop.termination"), "stop");
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.parent_span_id == run.span_id && call.links.is_empty()));
    assert_eq!(shown(calls[0], "gen_ai.usage.input_tokens"), 40);
    assert_eq!(sent_places(&server), [None, None]);
}

#[test]
fn call_that_the_end_of_a_run_cuts_is_marked() {
    let (cli, collector) = (Cli::new(), collector());
    let server = answering(|request| Reply::turn(request, &Turn::text("slowly")).stall_after(120));
    let proxy = listening(&cli, &file(&server, PROFILE), &endpoint(&collector), &[]);
    std::thread::scope(|scope| {
        // Its answer is cut, or there is none.
        scope.spawn(|| drop(proxy.try_turn("a", 1)));
        eventually("the model is asked", || server.requests().len() == 1);
        proxy.signal(Signal::TERM);
    });
    proxy.finish().exits(143);
    let got = Got::of(&collector);
    let (run, call) = (got.one("invoke_agent default"), got.one("chat m"));
    assert_eq!(shown(run, "endstop.termination"), "cancelled");
    assert_eq!(shown(call, "endstop.aborted"), true);
    assert_eq!(call.parent_span_id, run.span_id);
}

#[test]
fn hanging_collector_delays_no_guarded_call() {
    let hangs = answering(|_| Reply::new(200, "text/plain", "x").stall_after(0));
    let (cli, server) = (Cli::new(), server());
    let env = [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200000"),
    ];
    let proxy = listening(&cli, &file(&server, PROFILE), &endpoint(&hangs), &env);
    let time = |count: usize| {
        let began = Instant::now();
        (0..count).for_each(|run| assert_eq!(proxy.turn(&format!("r{run}"), 1, "").0, 200));
        began.elapsed()
    };
    time(1);
    // Far more spans than the queue has room for; the exporter waits for its first answer meanwhile.
    let took = time(40);
    assert!(took < Duration::from_secs(100), "the collector has 200 s: {took:?}");
    assert_eq!(server.requests().len(), 41);
    let done = proxy.stop(Signal::TERM).exits(143);
    assert!(done.stderr.contains("the collector at 127.0.0.1:"), "{}", done.stderr);
    assert!(!done.stderr.contains(OPENAI_KEY));
}
