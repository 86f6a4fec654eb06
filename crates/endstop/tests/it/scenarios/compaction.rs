//! Conversations that outgrow the window: they are shortened few times, and the run ends for the
//! right reason.

use super::STRICT;
use crate::support::{agent, over};
use endstop::compaction::{CompactionConfig, CompactionRequest};
use endstop::hook::{CompactionFuture, Compactor};
use endstop::testkit::{Reply, ScriptedModel, Server, Turn, strict};
use endstop::tool::{Tool, ToolContext, ToolOutput, tool_fn};
use endstop::{Agent, Limits, Outcome, Part, Termination, compaction::Compaction};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The window of the server's model, in tokens of four bytes.
const WINDOW: u64 = 4_000;

/// The requests that a provider would have rejected as invalid, or refused as too long.
#[derive(Default)]
struct Refused {
    torn: Vec<String>,
    too_long: u64,
}

/// A server that calls `read` without end, and refuses invalid or too long conversations.
fn small_window(api: &'static str) -> (Server, Arc<Mutex<Refused>>) {
    let refused = Arc::new(Mutex::new(Refused::default()));
    let seen = Arc::clone(&refused);
    let server = Server::start(move |request| {
        let tokens = request.body["messages"].to_string().len() as u64 / 4;
        let mut refused = seen.lock().unwrap();
        if let Some(problem) = strict::problem(api, &request.body) {
            refused.torn.push(problem);
            return Reply::new(400, "application/json", r#"{"error": {"message": "refused"}}"#);
        }
        if tokens > WINDOW {
            refused.too_long += 1;
            let message = format!("prompt is too long: {tokens} tokens > {WINDOW} maximum");
            let error = match api {
                "openai-chat" => {
                    json!({"error": {"code": "context_length_exceeded", "message": message}})
                }
                _ => {
                    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
                }
            };
            return Reply::new(400, "application/json", error.to_string());
        }
        let turn = Turn::text(format!("I read page {}.", request.number))
            .and_call("read", &json!({"page": request.number}));
        Reply::turn(request, &turn.usage(tokens, 20))
    });
    (server.unwrap(), refused)
}

/// Returns a different page for each call; the second one must not be forgotten.
fn read() -> impl Tool + 'static {
    let pages = AtomicU32::new(0);
    tool_fn("read", "Reads a page.", move |_: Map<String, Value>, _: ToolContext| {
        let page = pages.fetch_add(1, Ordering::SeqCst);
        let output = ToolOutput::ok(format!("page {page}: {}", "word ".repeat(300)));
        async move { if page == 1 { output.pin() } else { output } }
    })
}

fn sixty_turns() -> Limits {
    Limits { max_turns: Some(60), ..Limits::default() }
}

fn pages(outcome: &Outcome) -> Vec<String> {
    let results = outcome.messages.iter().flat_map(|message| message.tool_results());
    results.map(|result| result.content.chars().take(7).collect()).collect()
}

#[tokio::test]
async fn small_window_run_reaches_turn_limit() {
    for api in STRICT {
        for known in [true, false] {
            let (server, refused) = small_window(api);
            let mut builder = over(&server, api)
                .tool(read())
                .limits(sixty_turns())
                .compaction(&CompactionConfig::default());
            if known {
                builder = builder.context_window(WINDOW);
            }
            let outcome = builder.build().unwrap().run("Read the book.").unwrap().await;
            assert_eq!(outcome.termination, Termination::ErrorMaxTurns, "{api}: {outcome:?}");
            assert_eq!(outcome.turns, 60);
            let refused = refused.lock().unwrap();
            assert!(refused.torn.is_empty(), "{api}: {:?}", refused.torn);
            // With a known window the prompt is never too long; otherwise each refusal is an extra
            // attempt.
            assert_eq!(refused.too_long == 0, known, "{api}");
            assert_eq!(u64::from(outcome.model_calls), 60 + refused.too_long);
            let (tried, least) = (outcome.compactions.len(), if known { 5 } else { 3 });
            assert!((least..40).contains(&tried), "{api}: {tried}");
            for one in &outcome.compactions {
                let after = one.after.unwrap_or_else(|| panic!("{api}: {one:?}")).bytes;
                assert!(after * 10 <= one.before.bytes * 9, "{one:?}");
                assert_eq!(one.forced, !known);
            }
            assert_eq!(outcome.epoch, tried as u64);
            // The task and pinned messages remain in full until the end.
            assert_eq!(outcome.messages[0].plain_text(), "Read the book.");
            let pages = pages(&outcome);
            assert!(pages.contains(&"page 1:".to_owned()), "{pages:?}");
            assert_eq!(pages.last().map(String::as_str), Some("page 59"));
        }
    }
}

/// Claims to have shortened the conversation, but has not.
struct Lies(Arc<AtomicU32>);

impl Compactor for Lies {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Compaction::done("lies", request.messages) })
    }
}

#[tokio::test]
async fn useless_compaction_is_tried_four_times() {
    for api in STRICT {
        let (server, refused) = small_window(api);
        let asked = Arc::new(AtomicU32::new(0));
        let agent = over(&server, api)
            .tool(read())
            .limits(sixty_turns())
            .context_window(WINDOW)
            .compactor(Lies(Arc::clone(&asked)))
            .build()
            .unwrap();
        let outcome = agent.run("Read the book.").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorPromptTooLong, "{outcome:?}");
        // Three before a call, and one after the refusal.
        assert_eq!((asked.load(Ordering::SeqCst), outcome.compactions.len()), (4, 4));
        assert_eq!((refused.lock().unwrap().too_long, outcome.epoch), (1, 0));
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.contains("4 compactions were tried"), "{evidence}");
        assert!(evidence.contains("not_smaller"), "{evidence}");
    }
}

#[tokio::test]
async fn oversized_result_is_cut_after_refusal() {
    for api in STRICT {
        let (server, refused) = small_window(api);
        let long = tool_fn("read", "Reads.", |_: Map<String, Value>, _: ToolContext| async {
            ToolOutput::ok("word ".repeat(20_000))
        });
        let agent = over(&server, api)
            .tool(long)
            .limits(Limits {
                max_turns: Some(3),
                max_unproductive_turns: None,
                ..Limits::default()
            })
            .compaction(&CompactionConfig::default())
            .build()
            .unwrap();
        let outcome = agent.run("Read the book.").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorMaxTurns, "{outcome:?}");
        assert!(refused.lock().unwrap().torn.is_empty());
    }
}

/// A conversation whose turns report their usage.
fn talk(turns: usize) -> Vec<Turn> {
    (0..turns)
        .map(|n| Turn::call("read", &json!({"page": n})).usage(400 + 10 * n as u64, 5))
        .chain([Turn::text("Read.").usage(20, 2)])
        .collect()
}

#[tokio::test]
async fn failed_compaction_continues_if_prompt_fits() {
    let asked = Arc::new(AtomicU32::new(0));
    let model = ScriptedModel::new(talk(6)).context_window(600);
    let agent = Agent::builder(model)
        .tool(tool_fn("read", "Reads.", |_: Map<String, Value>, _: ToolContext| async { "a" }))
        .limits(Limits { max_unproductive_turns: None, ..Limits::default() })
        .compactor(Lies(Arc::clone(&asked)))
        .build()
        .unwrap();
    let outcome = agent.run("Read.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((asked.load(Ordering::SeqCst), outcome.turns), (3, 7));
}

#[tokio::test]
async fn next_run_continues_compacted_conversation() {
    let builder = agent(talk(8).into_iter().chain([Turn::text("Again.")]));
    let agent = builder
        .tool(read())
        .context_window(600)
        .compaction(&CompactionConfig::read(&json!("elide,drop")).unwrap())
        .build()
        .unwrap()
        .session();
    let first = agent.run("Read.").unwrap().await;
    assert_eq!(first.termination, Termination::Stop, "{first:?}");
    assert!(!first.compactions.is_empty());
    let second = agent.run("And now?").unwrap().await;
    assert_eq!(second.termination, Termination::Stop, "{second:?}");
    let ids: std::collections::BTreeSet<u64> =
        second.messages.iter().map(|message| message.id.0).collect();
    assert_eq!(ids.len(), second.messages.len(), "no id twice");
    let asked = second
        .messages
        .iter()
        .any(|message| message.parts == [Part::Text { text: "And now?".to_owned() }]);
    assert!(asked);
}
