//! A provider from nothing: it answers with the user's words in reverse.

use endstop::Agent;
use endstop::provider::{CallEvent, CallSpec, CallStream, ModelSession};
use endstop::provider::{Provider, Response, SessionSpec};
use futures_util::stream;

#[derive(Clone)]
struct Reverse;

impl Provider for Reverse {
    fn name(&self) -> &'static str {
        "example"
    }
    fn model(&self) -> &'static str {
        "reverse-1"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Reverse)
    }
    fn is_terminal(&self, response: &Response) -> bool {
        response.metadata.get("done").is_some_and(|done| done == true)
    }
}

impl ModelSession for Reverse {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let said = call.messages.last().map(endstop::Message::plain_text).unwrap_or_default();
        let mut response = Response::text(said.chars().rev().collect::<String>());
        response.metadata.insert("done".to_owned(), true.into());
        Box::pin(stream::iter([CallEvent::Ended(Box::new(response))]))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let outcome = Agent::builder(Reverse).build()?.run("Never odd or even")?.await;
    println!("{}", outcome.answer().ok_or_else(|| outcome.to_string())?);
    Ok(())
}
