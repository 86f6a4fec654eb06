//! Telemetry: the spans and metrics that a collector gets of each command, and a collector that is unreachable, hangs
//! or fails.

#[cfg(target_os = "linux")]
mod guard;
mod run;
#[cfg(unix)]
mod served;

use crate::cli::answering;
use endstop::testkit::{Reply, Server};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A place in the trace of a caller, with its trace and its span.
const PLACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A stub of a collector that accepts everything.
fn collector() -> Server {
    answering(|_| Reply::new(200, "application/x-protobuf", Vec::new()))
}

fn endpoint(collector: &Server) -> String {
    collector.base_url().trim_end_matches("/v1").to_owned()
}

/// The data that a collector got: spans, their attributes as JSON, and the resource.
struct Got {
    spans: Vec<Span>,
    resource: BTreeMap<String, Value>,
    scopes: Vec<String>,
}

impl Got {
    fn of(collector: &Server) -> Got {
        let mut got = Got { spans: Vec::new(), resource: BTreeMap::new(), scopes: Vec::new() };
        for request in collector.requests() {
            assert_eq!(request.method, "POST");
            assert_eq!(request.headers["content-type"], "application/x-protobuf");
            if request.path == "/v1/metrics" {
                continue;
            }
            assert_eq!(request.path, "/v1/traces");
            let request = ExportTraceServiceRequest::decode(request.bytes.as_slice()).unwrap();
            for of_resource in request.resource_spans {
                got.resource.extend(attributes(&of_resource.resource.unwrap().attributes));
                for of_scope in of_resource.scope_spans {
                    got.scopes.push(of_scope.scope.unwrap().name);
                    got.spans.extend(of_scope.spans);
                }
            }
        }
        got.spans.sort_by_key(|span| span.start_time_unix_nano);
        got
    }

    fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    #[track_caller]
    fn one(&self, name: &str) -> &Span {
        let found = self.named(name);
        let names: Vec<&str> = self.spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(found.len(), 1, "{name} among {names:?}");
        found[0]
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, Value> {
    fn json(value: &Option<AnyValue>) -> Value {
        match value.as_ref().and_then(|value| value.value.as_ref()).unwrap() {
            Any::StringValue(text) => json!(text),
            Any::BoolValue(flag) => json!(flag),
            Any::IntValue(number) => json!(number),
            Any::DoubleValue(number) => json!(number),
            Any::ArrayValue(list) => {
                list.values.iter().map(|value| json(&Some(value.clone()))).collect()
            }
            other => panic!("{other:?}"),
        }
    }
    list.iter().map(|pair| (pair.key.clone(), json(&pair.value))).collect()
}

fn failed(span: &Span) -> bool {
    let code = span.status.as_ref().map_or(StatusCode::Unset, |status| status.code());
    assert_ne!(code, StatusCode::Ok, "{}", span.name);
    code == StatusCode::Error
}
