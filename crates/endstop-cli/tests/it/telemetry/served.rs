//! The spans of runs over HTTP.

use super::{Got, PLACE, attributes, collector, endpoint, hex};
use crate::cli::{Cli, playing};
use crate::serve::{Serving, command};
use endstop::testkit::Turn;
use rustix::process::Signal;
use serde_json::json;

#[test]
fn served_runs_send_spans_in_the_trace_of_their_client() {
    let (cli, collector) = (Cli::new(), collector());
    let server = playing([Turn::text("Paris.").usage(10, 2), Turn::text("Rome.").usage(10, 2)]);
    let agent = format!(
        "model = \"openai/scripted\"\nbase_url = \"{}\"\n[agents.guide]\nsystem = \"Be brief.\"\n",
        server.base_url()
    );
    cli.write("agents.toml", agent);
    let mut command = command(&cli, &["--config", "agents.toml"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint(&collector));
    let serving = Serving::of(command);
    let body = json!({"agent": "guide", "task": "Where?"}).to_string();
    let header = format!("traceparent: {PLACE}\r\n");
    let (status, text) = serving.ask("POST /v1/runs", &header, &body);
    assert_eq!(status, 201, "{text}");
    let run: serde_json::Value = serde_json::from_str(&text).unwrap();
    let id = run["run_id"].as_str().unwrap().to_owned();
    serving.ended(&id);
    let other = serving.begin("guide", "And where else?");
    serving.ended(&other);
    serving.stop(Signal::TERM).exits(143);
    let got = Got::of(&collector);
    let runs = got.named("invoke_agent guide");
    assert_eq!((runs.len(), got.named("chat scripted").len()), (2, 2), "{:#?}", got.spans);
    for (span, run) in runs.iter().zip([&id, &other]) {
        let shown = attributes(&span.attributes);
        assert_eq!(shown["endstop.run_id"], **run);
        assert_eq!(shown["gen_ai.conversation.id"], **run);
        assert_eq!(shown["gen_ai.agent.name"], "guide");
        assert_eq!(shown["endstop.termination"], "stop");
    }
    assert_eq!(hex(&runs[0].trace_id), PLACE[3..35]);
    assert_eq!(hex(&runs[0].parent_span_id), PLACE[36..52]);
    assert!(runs[1].parent_span_id.is_empty());
    // A provider of another company has no use for the ids.
    assert!(server.requests().iter().all(|one| !one.headers.contains_key("traceparent")));
}
