//! Chooses the answers of the scripted servers: good, bad or none at all.
//!
//! ```text
//! let server = Server::start(move |request| answers.to(request))?;
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use endstop::testkit::{Reply, Request, Turn, sse, strict};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A pause that is longer than any limit of a run.
const NEVER: Duration = Duration::from_secs(600);

/// The answers of one server.
pub(crate) struct Answers {
    pub(crate) seed: u64,
    pub(crate) server: u64,
    /// Argument of `sleep` in shell commands, unique to this process.
    pub(crate) sleep: String,
    pub(crate) tally: Arc<Tally>,
}

/// A way to answer a turn.
#[derive(Clone, Copy, Debug)]
enum Way {
    Well,
    InPieces,
    Slowly,
    NoHead,
    Stalls,
    Cut,
    Closed,
    Reset,
    Status(u16),
    LaterAt(&'static str),
    Page,
    ErrorWithin,
    LongerClaimed,
    ShorterClaimed,
    OtherType,
    NotGzip,
    EndlessHead,
    PingsAlone,
    Garbage,
}

/// The ways with their shares in percent.
// Fewer than half of the answers are good, but enough that runs get beyond their first turn.
const WAYS: [(u64, Way); 28] = [
    (44, Way::Well),
    (8, Way::InPieces),
    (2, Way::Slowly),
    (3, Way::NoHead),
    (4, Way::Stalls),
    (4, Way::Cut),
    (4, Way::Closed),
    (4, Way::Reset),
    (1, Way::Status(400)),
    (1, Way::Status(401)),
    (1, Way::Status(404)),
    (1, Way::Status(413)),
    (1, Way::Status(429)),
    (2, Way::LaterAt("0")),
    (1, Way::LaterAt("0.02")),
    (1, Way::LaterAt("3600")),
    (2, Way::Status(500)),
    (1, Way::Status(503)),
    (1, Way::Status(529)),
    (1, Way::Page),
    (3, Way::ErrorWithin),
    (2, Way::LongerClaimed),
    (1, Way::ShorterClaimed),
    (1, Way::OtherType),
    (1, Way::NotGzip),
    (1, Way::EndlessHead),
    (2, Way::PingsAlone),
    (2, Way::Garbage),
];

impl Answers {
    pub(crate) fn to(&self, request: &Request) -> Reply {
        let api = api(request);
        // Every request is checked, because a broken conversation shows only in the request after
        // it.
        if let Some(problem) = strict::problem(api, &request.body) {
            let messages = &request.body["messages"];
            self.tally.broken(&format!("{api}: a provider would reject: {problem}: {messages}"));
        }
        // Seeded by the number of the request and not by a shared state, so that the order in which
        // connections are served does not change the answers.
        let mut dice = Dice::new(self.seed, &[self.server, request.number]);
        let turn = self.turn(request, api, &mut dice);
        let way = dice.weighed(Way::Well, &WAYS);
        self.tally.answered(&format!("{way:?}"));
        reply(request, api, &turn, way, &mut dice)
    }

    /// Chooses the content of a turn.
    fn turn(&self, request: &Request, api: &str, dice: &mut Dice) -> Turn {
        let offered = offered(&request.body);
        let words = dice.between(1, 20) as usize;
        // A text, an empty turn, or calls without text.
        let said = dice.below(20);
        let mut turn = Turn::text(if said < 11 { "word ".repeat(words) } else { String::new() });
        if dice.percent(6) {
            turn = turn.reasoning("thinking ".repeat(words));
        }
        let calls = if said > 11 { dice.between(1, 4) } else { dice.below(2) };
        for number in 0..calls {
            // Few loops offer a shell, so it is called often if it is there.
            let name = if number == 0 && offered.contains(&"shell") && dice.percent(50) {
                "shell"
            } else {
                dice.pick("unknown_tool", &offered)
            };
            turn = match name {
                "shell" => turn.and_call("shell", &json!({"command": self.command(dice)})),
                "finish" if dice.percent(40) => turn,
                "finish" if dice.percent(20) => {
                    turn.and_call("finish", &json!({"infeasible": "no"}))
                }
                "finish" => turn.and_call("finish", &json!({"deliverable": "the answer"})),
                "ask" => turn.and_call("ask", &json!({"task": "Look it up."})),
                name if dice.percent(4) => turn.and_raw_call(name, r#"{"ms": "#),
                name if dice.percent(4) => turn.and_call(name, &json!({"ms": "many"})),
                name => turn.and_call(name, &json!({"ms": dice.between(0, 40)})),
            };
        }
        // The finish values of a truncated and of a filtered turn differ by format.
        let (length, filtered) = match api {
            "anthropic-messages" => ("max_tokens", "refusal"),
            _ => ("length", "content_filter"),
        };
        match dice.below(30) {
            // A truncated turn may end inside the arguments of a call, which must not be run.
            0 => turn.and_raw_call("act", r#"{"ms": 1"#).finish(length),
            1 => turn.finish(length),
            2 => turn.finish(filtered),
            3 => turn.finish("a_new_reason"),
            _ => turn,
        }
    }

    fn command(&self, dice: &mut Dice) -> String {
        let sleep = &self.sleep;
        // Processes in the background, in a session of their own, and deaf to SIGTERM.
        match dice.below(4) {
            0 => "echo done".to_owned(),
            1 => format!("sleep {sleep} & sleep {sleep} & wait"),
            2 => format!("( setsid sleep {sleep} >/dev/null 2>&1 & ) ; sleep {sleep}"),
            _ => format!("trap '' TERM; sleep {sleep}"),
        }
    }
}

/// Returns the wire format of a request.
fn api(request: &Request) -> &'static str {
    if request.path.ends_with("/messages") { "anthropic-messages" } else { "openai-chat" }
}

/// Returns the names of the tools in a request.
fn offered(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
    // In OpenAI's format the names are one level deeper.
    let named = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    named.filter_map(|tool| tool["name"].as_str()).collect()
}

fn reply(request: &Request, api: &str, turn: &Turn, way: Way, dice: &mut Dice) -> Reply {
    let well = || Reply::turn(request, turn);
    let anthropic = api == "anthropic-messages";
    let events = || if anthropic { sse::anthropic(turn) } else { sse::openai(turn) };
    let stream = |text: String| Reply::new(200, "text/event-stream", text);
    let within = dice.between(1, 1_500) as usize;
    match way {
        Way::Well => well(),
        Way::InPieces => well().split(dice.between(1, 90) as usize),
        Way::Slowly => Reply::turn(request, &turn.clone().pace(dice.millis(1, 4))),
        Way::NoHead => well().after(NEVER),
        Way::Stalls => well().stall_after(within),
        Way::Cut => well().cut_after(within),
        Way::Closed => well().close_after(within),
        Way::Reset => well().reset_after(within),
        Way::Status(status) => Reply::new(status, "application/json", error(anthropic)),
        Way::LaterAt(when) => {
            Reply::new(429, "application/json", error(anthropic)).header("retry-after", when)
        }
        Way::Page => Reply::html(502),
        Way::ErrorWithin => {
            let mut events = events();
            events.truncate(dice.between(0, 4) as usize);
            let name = if anthropic { "event: error\n" } else { "" };
            events.push(format!("{name}data: {}\n\n", error(anthropic)));
            stream(events.concat())
        }
        Way::LongerClaimed => well().claim_length(200),
        Way::ShorterClaimed => well().claim_length(-50),
        Way::OtherType => Reply::new(200, "image/png", events().concat()),
        Way::NotGzip => well().header("content-encoding", "gzip"),
        Way::EndlessHead => well().endless_head(),
        Way::PingsAlone => {
            let ping =
                if anthropic { "event: ping\ndata: {\"type\": \"ping\"}\n\n" } else { ":\n\n" };
            let mut text = events().first().cloned().unwrap_or_default();
            text.push_str(&ping.repeat(40));
            stream(text).drip(Duration::from_millis(1))
        }
        // Random bytes under the content type of a stream.
        Way::Garbage => {
            let bytes: Vec<u8> = (0..within).map(|_| dice.below(256) as u8).collect();
            Reply::new(200, "text/event-stream", bytes)
        }
    }
}

fn error(anthropic: bool) -> String {
    let error = json!({"type": "api_error", "message": "not now"});
    let body =
        if anthropic { json!({"type": "error", "error": error}) } else { json!({"error": error}) };
    body.to_string()
}
