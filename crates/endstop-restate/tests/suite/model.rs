//! The scripted model server of a scenario, which refuses requests that a provider would refuse.

use crate::run::{Counter, On};
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, Request, Server, Turn, sse, strict};
use endstop::{Agent, AgentBuilder, NanoUsd, Price};
use std::sync::{Arc, Mutex};

/// An agent with the server at an address.
pub fn over(base_url: &str, api: &str) -> AgentBuilder {
    let options = HttpProvider::builder("script").api(api).base_url(base_url);
    Agent::builder(options.env(|_| None).build().unwrap())
}

/// A dollar for a million prompt tokens, ten for a million generated ones.
pub fn price() -> Price {
    Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(10.0), ..Price::default() }
}

/// The value with which a format ends a turn.
pub fn finish(api: &str, openai: &'static str) -> &'static str {
    match (api, openai) {
        ("openai-chat", _) => openai,
        (_, "length") => "max_tokens",
        (_, "tool_calls") => "tool_use",
        (_, other) => panic!("no such value: {other}"),
    }
}

/// Returns a reply that is silent after the first event with one of these parts: in `openai-chat`, and
/// in `anthropic-messages`.
pub fn silent_after_event(request: &Request, api: &str, turn: &Turn, parts: [&str; 2]) -> Reply {
    let (events, part) = match api {
        "openai-chat" => (sse::openai(turn), parts[0]),
        _ => (sse::anthropic(turn), parts[1]),
    };
    let last =
        events.iter().position(|event| event.contains(part)).expect("an event with the part");
    let bytes = events[..=last].iter().map(String::len).sum();
    Reply::turn(request, turn).stall_after(bytes)
}

/// A scripted server.
pub struct Model {
    pub api: &'static str,
    pub server: Server,
    /// Number of requests.
    pub calls: Counter,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Drop for Model {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let refused = self.refused.lock().unwrap();
            assert!(refused.is_empty(), "{}: {refused:?}", self.api);
        }
    }
}

impl Model {
    pub fn url(&self) -> String {
        self.server.base_url()
    }

    fn start(
        on: Option<&On>,
        api: &'static str,
        strictly: bool,
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Model {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let (seen, calls) = (Arc::clone(&refused), Counter::default());
        let (own, all) = (calls.clone(), on.map(|on| on.calls.clone()));
        let server = Server::start(move |request| {
            own.add();
            if let Some(all) = &all {
                all.add();
            }
            let problem = strict::problem(api, &request.body);
            if let Some(problem) = problem.filter(|_| strictly) {
                seen.lock().unwrap().push(format!("{problem}: {}", request.body["messages"]));
                return Reply::new(400, "application/json", r#"{"error": {"message": "refused"}}"#);
            }
            reply(request)
        });
        Model { api, server: server.unwrap(), calls, refused }
    }

    /// Starts a server that makes each reply with a function.
    pub fn replying(
        on: &On,
        api: &'static str,
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Model {
        Model::start(Some(on), api, true, reply)
    }

    /// Starts a server that makes each turn from the number of its request, from 1.
    pub fn answering(
        on: &On,
        api: &'static str,
        turn: impl Fn(usize) -> Turn + Send + Sync + 'static,
    ) -> Model {
        Model::replying(on, api, move |request| Reply::turn(request, &turn(number(request))))
    }

    /// Starts a server whose requests are not part of the table, because their number depends on the
    /// moment of a stop.
    pub fn uncounted(
        api: &'static str,
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Model {
        Model::start(None, api, true, reply)
    }

    /// Starts a server that accepts a request whose last message is a paused turn, which the checker
    /// does not.
    pub fn pausing(
        on: &On,
        api: &'static str,
        turn: impl Fn(usize) -> Turn + Send + Sync + 'static,
    ) -> Model {
        let reply = move |request: &Request| Reply::turn(request, &turn(number(request)));
        Model::start(Some(on), api, false, reply)
    }

    /// Starts a server with these turns; the last one is repeated.
    pub fn script(on: &On, api: &'static str, turns: impl IntoIterator<Item = Turn>) -> Model {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Model::answering(on, api, move |number| turns[number.min(turns.len()) - 1].clone())
    }
}

fn number(request: &Request) -> usize {
    usize::try_from(request.number).unwrap()
}
