//! A client of the Agent Client Protocol, for programs that serve it: the task is a prompt, and the answer to the prompt is
//! the verdict. An interrupt of the user is `session/cancel`.

use super::a2a::{AFTER, AFTER_CANCEL};
use super::place::Place;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::time::Instant;

/// The id of the prompt, by which a profile finds the verdict. A text, because programs number their own requests.
const PROMPT: &str = "prompt";

/// The client of one start.
pub(super) struct Client<'a> {
    place: &'a Place,
    task: &'a str,
    /// The input of the program, until the client leaves.
    input: Option<File>,
    has_left: bool,
    /// Number of lines of the output that were read.
    read: usize,
    session: Value,
    answered: Option<Instant>,
    is_cancelled: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(place: &'a Place, task: &'a str) -> Client<'a> {
        Client {
            place,
            task,
            input: None,
            has_left: false,
            read: 0,
            session: Value::Null,
            answered: None,
            is_cancelled: false,
        }
    }

    /// Reads what the program has said, and answers it.
    ///
    /// # Errors
    /// The input of the program cannot be opened.
    pub(super) fn step(&mut self) -> io::Result<()> {
        if self.has_left {
            return Ok(());
        }
        if self.input.is_none() {
            let Some(path) = self.place.input() else { return Ok(()) };
            // With both directions, opening does not wait for the program.
            self.input = Some(OpenOptions::new().read(true).write(true).open(path)?);
            self.request(
                "initialize",
                "initialize",
                &json!({"protocolVersion": 1, "clientCapabilities": {}}),
            );
        }
        let (output, _) = self.place.output();
        // Without the last line if it is not whole.
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        for line in whole.lines().skip(self.read) {
            self.read += 1;
            if let Ok(message) = serde_json::from_str::<Value>(line) {
                self.hear(&message);
            }
        }
        let after = if self.is_cancelled { AFTER_CANCEL } else { AFTER };
        if self.answered.is_some_and(|at| at.elapsed() > after) {
            self.has_left = true;
            self.input = None;
        }
        Ok(())
    }

    fn hear(&mut self, message: &Value) {
        if message["method"].is_string() {
            if !message["id"].is_null() {
                self.say(&answer(message));
            }
        } else if message["id"] == "initialize" {
            // Servers refuse a session before this answer.
            let folder = json!({"cwd": self.place.work(), "mcpServers": []});
            self.request("session", "session/new", &folder);
        } else if message["id"] == "session" {
            self.session = message["result"]["sessionId"].clone();
            let prompt = json!([{"type": "text", "text": self.task}]);
            self.request(
                PROMPT,
                "session/prompt",
                &json!({"sessionId": self.session, "prompt": prompt}),
            );
        } else if message["id"] == PROMPT {
            self.answered.get_or_insert_with(Instant::now);
        }
    }

    /// The time of the verdict.
    pub(super) fn ended(&self) -> Option<Instant> {
        self.answered
    }

    /// Cancels the prompt.
    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
        let params = json!({"sessionId": self.session});
        self.say(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    }

    fn request(&mut self, id: &str, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    fn say(&mut self, message: &Value) {
        // A program that has ended reads nothing; its exit says so.
        let _ = self.input.as_mut().map(|input| writeln!(input, "{message}"));
    }
}

/// The answer to a request of the program: a call is allowed, as other programs are started without questions, and the client has
/// no files and terminals.
fn answer(request: &Value) -> Value {
    let id = &request["id"];
    if request["method"] != "session/request_permission" {
        let error = json!({"code": -32601, "message": "the client has no such method"});
        return json!({"jsonrpc": "2.0", "id": id, "error": error});
    }
    let options = request["params"]["options"].as_array();
    let allows = options.into_iter().flatten().find(|option| option["kind"] == "allow_once");
    let outcome = match allows {
        Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})
}

#[cfg(test)]
mod tests {
    use super::answer;
    use serde_json::json;

    #[test]
    fn calls_are_allowed() {
        let asked = |options| {
            let params = json!({"options": options});
            answer(&json!({"id": 7, "method": "session/request_permission", "params": params}))
        };
        let allows = json!({"optionId": "a", "kind": "allow_once"});
        let both = asked(json!([{"optionId": "d", "kind": "reject_once"}, allows]));
        assert_eq!(both["result"]["outcome"], json!({"outcome": "selected", "optionId": "a"}));
        assert_eq!(both["id"], 7);
        assert_eq!(asked(json!([]))["result"]["outcome"]["outcome"], "cancelled");
        assert_eq!(
            answer(&json!({"id": 8, "method": "fs/read_text_file"}))["error"]["code"],
            -32601
        );
    }
}
