//! Describes what a file or a stored run asks for, grouped for the user's decision: commands,
//! hosts, tools, and other settings. Nothing is shortened, and control characters are escaped.

use super::file::Entry;
use super::shown;
use crate::config::servers::{ServerPlace, ServerSettings};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// The requested settings, grouped by their effect.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Asks {
    commands: Vec<Ask>,
    hosts: Vec<Ask>,
    tools: Vec<Ask>,
    other: Vec<Ask>,
    /// Settings that need no consent now. They are shown because trust covers the whole file.
    tighter: Vec<Ask>,
}

/// One requested setting.
#[derive(Debug, Serialize)]
struct Ask {
    key: String,
    value: String,
    /// Additional effects: variables, headers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    with: Vec<String>,
}

impl Asks {
    /// Collects what these entries of a file ask for.
    ///
    /// # Errors
    /// A server that is configured wrongly.
    pub(crate) fn of(entries: &[&Entry]) -> Result<Asks, String> {
        let mut asks = Asks::default();
        for entry in entries {
            match entry.parts() {
                ("mcp", Some(name)) => {
                    let read = ServerSettings::of_table(name, &entry.value);
                    asks.server(&read.map_err(|problem| format!("[{}]: {problem}", entry.name))?);
                }
                ("agents", Some(_)) => asks.agent(entry)?,
                _ => asks.add(&entry.name, &entry.value),
            }
        }
        Ok(asks)
    }

    /// Adds a setting.
    pub(crate) fn add(&mut self, key: &str, value: &Value) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let ask =
            |value: &str, with: Vec<String>| Ask { key: shown(key), value: shown(value), with };
        match key {
            "verify" => {
                let with = vec!["runs after a success, with the whole environment".to_owned()];
                self.commands.push(ask(&text, with));
            }
            "notify.command" => {
                let with = vec!["is notified of each run, with the whole environment".to_owned()];
                self.commands.push(ask(&text, with));
            }
            "notify.webhook" => {
                let with = vec![format!("{} is notified of each run", host(&text))];
                self.hosts.push(ask(&text, with));
            }
            "base_url" => {
                let with = vec![format!("{} receives the conversation and the key", host(&text))];
                self.hosts.push(ask(&text, with));
            }
            "http.proxy" if text != "off" => {
                let with = vec![format!("requests to the model go through {}", host(&text))];
                let address = endstop::wire::redact::address(&text);
                self.hosts.push(ask(&address, with));
            }
            "http.ca_file" => {
                let with = "its authorities can vouch for any server".to_owned();
                self.other.push(ask(&text, vec![with]));
            }
            "tools" => {
                for name in value.as_array().into_iter().flatten() {
                    self.tools.push(ask(name.as_str().unwrap_or_default(), Vec::new()));
                }
            }
            "params.headers" => {
                // A literal value may be one of the user's own keys.
                for (name, value) in value.as_object().into_iter().flatten() {
                    let written = value.as_str().filter(|value| value.contains('$'));
                    let value = format!("{name}: {}", written.unwrap_or("(as written)"));
                    self.other.push(ask(&value, vec!["is sent to the model's server".to_owned()]));
                }
            }
            _ => self.other.push(ask(&text, Vec::new())),
        }
    }

    /// Adds the settings of an agent, each under the agent's name.
    fn agent(&mut self, agent: &Entry) -> Result<(), String> {
        let settings = agent.value.as_object().cloned().unwrap_or_default();
        let entries =
            Entry::all_of(settings).map_err(|problem| format!("[{}]: {problem}", agent.name))?;
        let own = Asks::of(&entries.iter().collect::<Vec<_>>())?;
        for (all, own) in self.parts_mut().into_iter().zip(own.into_parts()) {
            let named = own
                .into_iter()
                .map(|ask| Ask { key: format!("{}.{}", shown(&agent.name), ask.key), ..ask });
            all.extend(named);
        }
        if settings_are_empty(&agent.value) {
            self.add(&agent.name, &agent.value);
        }
        Ok(())
    }

    fn parts_mut(&mut self) -> [&mut Vec<Ask>; 5] {
        let Asks { commands, hosts, tools, other, tighter } = self;
        [commands, hosts, tools, other, tighter]
    }

    fn into_parts(self) -> [Vec<Ask>; 5] {
        let Asks { commands, hosts, tools, other, tighter } = self;
        [commands, hosts, tools, other, tighter]
    }

    /// Adds an MCP server.
    pub(crate) fn server(&mut self, server: &ServerSettings) {
        let key = shown(&format!("mcp.{}", server.name));
        match server.place() {
            ServerPlace::Command(line) => {
                let with = server.variables().iter();
                let with = with.map(|name| format!("can read the variable {}", shown(name)));
                self.commands.push(Ask { key, value: shown(&line), with: with.collect() });
            }
            ServerPlace::Url(url) => {
                let mut with = vec![format!("calls {}", host(url))];
                with.extend(server.headers().map(|(name, value)| {
                    // A literal value may be one of the user's own keys.
                    let value = if value.contains('$') { value } else { "(as written)" };
                    shown(&format!("sends the header {name}: {value}"))
                }));
                let sent = server.headers().map(|(_, value)| value).chain([url]);
                // A list and no set, so that the variables stay in the order of the file.
                let mut named: Vec<&str> = Vec::new();
                for name in sent.flat_map(variables) {
                    if !named.contains(&name) {
                        named.push(name);
                    }
                }
                with.extend(named.iter().map(|name| format!("sends the variable {name}")));
                self.hosts.push(Ask { key, value: shown(url), with });
            }
        }
    }

    /// Adds a setting that needs no consent.
    pub(crate) fn tighter(&mut self, entry: &Entry) {
        let value = &entry.value;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let ask = Ask { key: shown(&entry.name), value: shown(&text), with: Vec::new() };
        self.tighter.push(ask);
    }

    /// `true` if nothing needs consent.
    pub(crate) fn is_empty(&self) -> bool {
        // All groups but the last, which lists the settings that only tighten.
        self.parts()[..4].iter().all(|(_, asks)| asks.is_empty())
    }

    fn parts(&self) -> [(&'static str, &[Ask]); 5] {
        [
            ("commands to run", &self.commands),
            ("hosts to contact", &self.hosts),
            ("tools for the model", &self.tools),
            ("other settings", &self.other),
            ("settings that only tighten yours", &self.tighter),
        ]
    }

    /// Formats all groups for the user, one line for each setting.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (title, asks) in self.parts().iter().filter(|(_, asks)| !asks.is_empty()) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {title}:");
            for ask in *asks {
                let _ = writeln!(text, "    {} = {}", ask.key, ask.value);
                for with in &ask.with {
                    let _ = writeln!(text, "      {with}");
                }
            }
        }
        text.trim_end().to_owned()
    }
}

/// `true` if an agent has no setting of its own.
fn settings_are_empty(agent: &Value) -> bool {
    agent.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Returns the scheme, host and port of an address, without user and path. A name with non-ASCII
/// letters is shown in its ASCII form, so that look-alike letters are visible.
pub(crate) fn host(url: &str) -> String {
    let Ok(parsed) = url::Url::parse(url) else { return shown(url) };
    let host = parsed.host_str().unwrap_or_default();
    let port = parsed.port().map(|port| format!(":{port}")).unwrap_or_default();
    shown(&format!("{}://{host}{port}", parsed.scheme()))
}

/// Returns the variables that a text refers to.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let name = |after: &'_ str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        after.find(|c| !fits(c)).unwrap_or(after.len())
    };
    // The first part is before any `$`, so it names no variable.
    text.split('$').skip(1).filter_map(move |after| {
        let after = after.strip_prefix('{').unwrap_or(after);
        Some(&after[..name(after)]).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn asks_are_shown_in_full() {
        let entry = |name: &str, value| {
            let (table, key) = match name.split_once('.') {
                Some(("mcp", key)) => (Some("mcp"), key),
                Some((_, key)) => (Some("limits"), key),
                None => (None, name),
            };
            Entry::new(table, key.to_owned(), value)
        };
        let long = "x".repeat(5_000);
        let entries = [
            entry("verify", json!(format!("true; \u{1b}[2J{long}"))),
            entry("mcp.a", json!({"command": ["sh", "-c", "id\n"], "env": ["OPENAI_API_KEY"]})),
            entry(
                "mcp.b",
                json!({"url": "http://h\u{f6}st:1/?k=${A_KEY}", "headers": {"W": "$A_KEY", "X": "a $SECRET\u{202e}", "Y": "sk-own"}}),
            ),
            entry("tools", json!(["shell"])),
            entry("limits.max_turns", json!("off")),
        ];
        let asks = Asks::of(&entries.iter().collect::<Vec<_>>()).unwrap();
        let text = asks.text();
        for part in [
            "verify = true; \\u{1b}[2Jxxx",
            &long,
            "mcp.a = [\"sh\", \"-c\", \"id\\n\"]",
            "can read the variable OPENAI_API_KEY",
            "calls http://xn--hst-sna:1",
            "sends the header X: a $SECRET\\u{202e}",
            "sends the header Y: (as written)",
            "sends the variable SECRET",
            "sends the variable A_KEY",
            "tools = shell",
            "limits.max_turns = off",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(text.matches("sends the variable A_KEY").count(), 1, "{text}");
        assert!(!text.contains("sk-own"), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
