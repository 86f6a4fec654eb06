//! Servers whose headers are wrong, over real sockets: a false length, encoding or type of a body
//! has no effect, and an incomplete body is not an answer.

use endstop::testkit::{Reply, Server, Turn, sse};
use endstop::{Category, Limits, Outcome, Termination};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write as _;

const SAID: &str = "a whole answer of some length";

fn ollama() -> String {
    let line = |text: &str, done: bool| {
        let reason = if done { "stop" } else { "" };
        let message = json!({"role": "assistant", "content": text});
        format!("{}\n", json!({"message": message, "done_reason": reason, "done": done}))
    };
    SAID.split_inclusive(' ').map(|word| line(word, false)).collect::<String>() + &line("", true)
}

/// A stream with the answer, in every format that can be requested.
fn streams() -> Vec<(&'static str, String)> {
    let turn = Turn::text(SAID);
    vec![
        ("openai-chat", sse::openai(&turn).concat()),
        ("anthropic-messages", sse::anthropic(&turn).concat()),
        ("gemini", sse::gemini(&turn).concat()),
        ("cohere-v2", sse::cohere(&turn).concat()),
        ("openai-responses", sse::openai_responses(&turn).concat()),
        ("ollama", ollama()),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn stream(body: impl Into<Vec<u8>>) -> Reply {
    Reply::new(200, "text/event-stream", body)
}

/// Returns the outcome of a run with a server that sends this response once.
async fn run(api: &str, reply: Reply) -> Outcome {
    let server = Server::start(move |_| reply.clone()).unwrap();
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    let agent = crate::support::over(&server, api).limits(limits).build().unwrap();
    agent.run("hi").unwrap().await
}

fn failed(what: &str, api: &str, outcome: &Outcome) {
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{what} {api}: {outcome:?}");
    assert_ne!(outcome.category(), Category::Success);
}

#[tokio::test]
async fn false_content_encoding_is_an_error() {
    for (api, body) in streams() {
        let packed = stream(gzip(body.as_bytes())).header("content-encoding", "gzip");
        let outcome = run(api, packed.split(11)).await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some(SAID));

        let plain = stream(body.as_str()).header("content-encoding", "gzip");
        failed("plain, said to be packed", api, &run(api, plain).await);
        // Compressed, without a header that announces it.
        let silent = stream(gzip(body.as_bytes()));
        failed("packed, and not said to be", api, &run(api, silent).await);
        // Compressed with a method that was not requested.
        let twice = stream(gzip(&gzip(body.as_bytes()))).header("content-encoding", "gzip");
        failed("packed twice", api, &run(api, twice).await);
    }
}

#[tokio::test]
async fn truncated_compressed_body_is_an_error() {
    for (api, body) in streams() {
        let packed = gzip(body.as_bytes());
        for left in [0, 1, 9, packed.len() / 2] {
            let reply = stream(&packed[..left]).header("content-encoding", "gzip");
            failed(&format!("{left} bytes of it"), api, &run(api, reply).await);
        }
        // Damaged in the middle.
        let mut damaged = packed.clone();
        let at = damaged.len() / 2;
        damaged[at] ^= 0xff;
        damaged.truncate(at + 1);
        let reply = stream(damaged).header("content-encoding", "gzip");
        failed("damaged", api, &run(api, reply).await);
    }
}

#[tokio::test]
async fn wrong_content_length_decides_nothing() {
    for (api, body) in streams() {
        // More is announced than sent: the body counts as complete if the stream's own end was
        // received.
        let whole = stream(body.as_str()).claim_length(500);
        let outcome = run(api, whole).await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some(SAID));
        let half = stream(&body.as_bytes()[..body.len() / 2]);
        failed("half, more claimed", api, &run(api, half.claim_length(500)).await);
        // Less is announced than sent: the rest is not read.
        let less = i64::try_from(body.len()).unwrap() * 3 / 4;
        failed("less claimed", api, &run(api, stream(body.as_str()).claim_length(-less)).await);
        let none = i64::try_from(body.len()).unwrap();
        failed("nothing claimed", api, &run(api, stream(body.as_str()).claim_length(-none)).await);
    }
}

#[tokio::test]
async fn wrong_content_type_decides_nothing() {
    for (api, body) in streams() {
        for kind in ["text/html", "application/json", "application/octet-stream", "image/png", ""] {
            let outcome = run(api, Reply::new(200, kind, body.as_str())).await;
            assert_eq!(outcome.termination, Termination::Stop, "{api} as {kind}: {outcome:?}");
            assert_eq!(outcome.last_text.as_deref(), Some(SAID));
        }
        for kind in ["text/event-stream", "application/json", "application/x-ndjson"] {
            for page in ["<html>Please log in</html>", "Bad Gateway", "\u{0}\u{1}", "null", ""] {
                let outcome = run(api, Reply::new(200, kind, page)).await;
                if page.starts_with("<html>") {
                    // The address is that of a page, which another attempt does not change.
                    assert_eq!(outcome.termination, Termination::ErrorProviderRejected, "{api}");
                } else {
                    failed(&format!("{page:?} as {kind}"), api, &outcome);
                }
            }
        }
    }
}
