//! Ten thousand calls in one turn, in several stream formats: all are answered in order, with as
//! many running at once as allowed, also if the run is cancelled in the middle.

use crate::support::{over, results};
use endstop::testkit::{Reply, Server, Turn, strict};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{AgentBuilder, Limits, Outcome, Part, Termination, ToolStatus};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const MANY: usize = 10_000;
const AT_ONCE: usize = 7;

/// A server that first requests many calls, then answers. It records what a provider would refuse.
fn server(api: &'static str, refused: &Arc<Mutex<Vec<String>>>) -> Server {
    let calls =
        (0..MANY).fold(Turn::text("Many."), |turn, n| turn.and_call("count", &json!({ "n": n })));
    let refused = Arc::clone(refused);
    Server::start(move |request| {
        refused.lock().unwrap().extend(strict::problem(api, &request.body));
        let turn = if request.number == 1 { calls.clone() } else { Turn::text("done") };
        Reply::turn(request, &turn)
    })
    .unwrap()
}

/// Number of calls running now, the maximum at once, and the total.
#[derive(Default)]
struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// A tool that yields in the middle and answers with its number. At the given call it sends a
/// signal and waits until it is stopped.
fn count(
    seen: &Arc<Seen>,
    last: Option<(usize, CancellationToken)>,
) -> impl endstop::tool::Tool + use<> {
    let seen = Arc::clone(seen);
    tool_fn("count", "Counts.", move |args: Map<String, Value>, context: ToolContext| {
        let (seen, last) = (Arc::clone(&seen), last.clone());
        async move {
            seen.all.fetch_add(1, Ordering::SeqCst);
            let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let n = args["n"].as_u64().unwrap();
            if let Some((_, reached)) = last.filter(|(at, _)| *at as u64 == n) {
                reached.cancel();
                context.cancelled().await;
                seen.now.fetch_sub(1, Ordering::SeqCst);
                return ToolOutput::error("stopped");
            }
            seen.now.fetch_sub(1, Ordering::SeqCst);
            ToolOutput::ok(n.to_string())
        }
    })
    .parallel_safe()
}

fn agent(server: &Server, api: &str) -> AgentBuilder {
    let limits = Limits { tool_concurrency: AT_ONCE as u32, ..Limits::default() };
    over(server, api).limits(limits)
}

/// Asserts that the results answer the calls one by one, in order.
fn answer_the_calls(outcome: &Outcome) {
    let parts = outcome.messages.iter().flat_map(|message| &message.parts);
    let asked = parts.filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.id.as_str()),
        _ => None,
    });
    let answered: Vec<&str> = results(outcome).iter().map(|r| r.call_id.as_str()).collect();
    assert_eq!(answered.len(), MANY);
    assert!(asked.eq(answered), "in the order of the calls");
}

async fn all_are_answered_in_order(api: &'static str) {
    let refused = Arc::default();
    let server = server(api, &refused);
    let seen = Arc::new(Seen::default());
    let agent = agent(&server, api).tool(count(&seen, None)).build().unwrap();
    let outcome = agent.run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{:?}", outcome.decided_by);
    assert_eq!((outcome.turns, outcome.tool_calls as usize), (2, MANY));
    answer_the_calls(&outcome);
    for (n, result) in results(&outcome).into_iter().enumerate() {
        assert_eq!((result.status, &result.content), (ToolStatus::Ok, &n.to_string()));
    }
    assert_eq!(seen.all.load(Ordering::SeqCst), MANY);
    assert_eq!(seen.most.load(Ordering::SeqCst), AT_ONCE, "the cap is used, and held");
    let refused = refused.lock().unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn many_calls_are_answered_in_order() {
    all_are_answered_in_order("openai-chat").await;
}

#[tokio::test]
async fn many_blocks_are_answered_in_order() {
    all_are_answered_in_order("anthropic-messages").await;
}

#[tokio::test]
async fn cancel_answers_all_of_many_calls() {
    let api = "anthropic-messages";
    let refused = Arc::default();
    let server = server(api, &refused);
    let seen = Arc::new(Seen::default());
    let reached = CancellationToken::new();
    let tool = count(&seen, Some((MANY / 2, reached.clone())));
    let agent = agent(&server, api).tool(tool).build().unwrap().session();
    let handle = agent.run("hi").unwrap();
    reached.cancelled().await;
    agent.cancel();
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::Cancelled, "{api}: {:?}", outcome.decided_by);
    answer_the_calls(&outcome);
    let begun = seen.all.load(Ordering::SeqCst);
    assert!((MANY / 2..MANY).contains(&begun), "{begun} were begun");
    assert_eq!(seen.now.load(Ordering::SeqCst), 0, "no call is running");
    for (n, result) in results(&outcome).into_iter().enumerate() {
        // Started calls are reported as started, even if they were aborted; no other call is.
        assert_eq!(result.started, n < begun, "{n}: {result:?}");
        match result.status {
            ToolStatus::Ok => assert_eq!(result.content, n.to_string()),
            status => assert_eq!(status, ToolStatus::Aborted, "{n}: {result:?}"),
        }
    }
    assert_eq!(outcome.tool_calls as usize, begun, "the others do not count");
    // The conversation can continue from there.
    let outcome = agent.run("go on").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{api}: {:?}", outcome.decided_by);
    let refused = refused.lock().unwrap();
    assert!(refused.is_empty(), "{api}: {refused:?}");
}
