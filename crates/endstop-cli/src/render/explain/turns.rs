//! The turns of a run: its events, grouped.

use serde_json::Value;

/// A turn of the timeline.
#[derive(Debug, Default)]
pub(crate) struct Turn<'a> {
    pub(crate) number: u64,
    /// The attempts: start, end, and error class if it failed.
    pub(crate) attempts: Vec<(f64, f64, Option<String>)>,
    pub(crate) text: &'a str,
    /// Prompt tokens and generated tokens.
    pub(crate) tokens: (u64, u64),
    /// US dollars that the run had spent at the end of this turn.
    pub(crate) cost: Option<f64>,
    pub(crate) finish: String,
    pub(crate) tools: Vec<Tool<'a>>,
    pub(crate) told: Vec<&'a str>,
}

#[derive(Debug)]
pub(crate) struct Tool<'a> {
    /// The provider's id of the call.
    call_id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a str,
    pub(crate) from: f64,
    /// The end of the call; `None` if no end was recorded.
    pub(crate) to: Option<f64>,
    pub(crate) status: &'a str,
    pub(crate) content: &'a str,
}

impl<'a> Turn<'a> {
    /// Adds an event of the turn.
    fn add(&mut self, event: &'a Value) {
        let at = event["at_ms"].as_f64().unwrap_or(0.0);
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        match text("type") {
            // An empty reason marks an attempt whose end was not seen yet.
            "turn_started" => self.attempts.push((at, at, Some(String::new()))),
            "attempt_failed" => {
                if let Some(attempt) = self.attempts.last_mut() {
                    let class = event["error"]["class"].as_str().unwrap_or("failed");
                    (attempt.1, attempt.2) = (at, Some(class.to_owned()));
                }
            }
            "turn_finished" => {
                if let Some(attempt) = self.attempts.last_mut() {
                    (attempt.1, attempt.2) = (at, None);
                }
                self.text = text("text");
                let usage = &event["usage"];
                let tokens = |key: &str| usage[key].as_u64().unwrap_or(0);
                self.tokens = (tokens("input_tokens"), tokens("output_tokens"));
                self.cost = event["cost_usd"].as_f64();
                let said = &event["signal"]["provider_specific"]["original_value"];
                self.finish = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            }
            "tool_started" => self.tools.push(Tool {
                call_id: text("call_id"),
                name: text("name"),
                arguments: text("arguments"),
                from: at,
                to: None,
                status: "",
                content: "",
            }),
            "tool_finished" => {
                let (call_id, name) = (text("call_id"), text("name"));
                let status = text("status");
                // Matched by the id, because parallel calls of one tool may end in another
                // order than they started in.
                let open = self
                    .tools
                    .iter_mut()
                    .find(|t| t.to.is_none() && t.call_id == call_id && t.name == name);
                match open {
                    Some(tool) => {
                        (tool.to, tool.status) = (Some(at), status);
                        tool.content = text("content");
                    }
                    // A call that was answered without being run has no start event.
                    None => self.tools.push(Tool {
                        call_id,
                        name,
                        arguments: "",
                        from: at,
                        to: Some(at),
                        status,
                        content: text("content"),
                    }),
                }
            }
            "message_injected" => self.told.push(text("text")),
            _ => {}
        }
    }
}

/// Groups the events of a timeline into turns, in order. An attempt that was still in progress is cut
/// at `end_ms`.
pub(super) fn turns_of(entries: &[Value], end_ms: f64) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for event in entries {
        if event["type"] == "turn_started" {
            let number = event["turn"].as_u64().unwrap_or(0);
            // A later attempt starts the same turn again.
            if turns.last().is_none_or(|turn| turn.number != number) {
                turns.push(Turn { number, ..Turn::default() });
            }
        }
        let Some(turn) = turns.last_mut() else { continue };
        turn.add(event);
    }
    for turn in &mut turns {
        for attempt in &mut turn.attempts {
            if attempt.2.as_ref().is_some_and(String::is_empty) {
                (attempt.1, attempt.2) = (end_ms, Some("cut".to_owned()));
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::turns_of;
    use serde_json::json;

    #[test]
    fn parallel_calls_keep_own_results() {
        let entries = [
            json!({"type": "turn_started", "turn": 1, "attempt": 1, "at_ms": 0.0}),
            json!({"type": "tool_started", "call_id": "a", "name": "shell", "arguments": "{}", "at_ms": 1.0}),
            json!({"type": "tool_started", "call_id": "b", "name": "shell", "arguments": "{}", "at_ms": 1.0}),
            json!({"type": "tool_finished", "call_id": "b", "name": "shell", "status": "ok", "content": "second", "at_ms": 2.0}),
            json!({"type": "tool_finished", "call_id": "a", "name": "shell", "status": "ok", "content": "first", "at_ms": 9.0}),
        ];
        let turns = turns_of(&entries, 9.0);
        let tools: Vec<_> = turns[0].tools.iter().map(|tool| (tool.content, tool.to)).collect();
        assert_eq!(tools, [("first", Some(9.0)), ("second", Some(2.0))]);
    }
}
