//! The configuration of MCP servers: `[mcp.NAME]` in endstop.toml, and `--mcp`, which overrides it.

use crate::config::flag::{Commands, FlagValue, Spelling};

use crate::config::kind::{Kind, Members, Problem, plain, restored};

use crate::config::trust::shown;
use crate::failure::{Failure, Result};
use clap::{Arg, ArgMatches};
use endstop::core::limits::{parse_duration, unknown_key};
use endstop::mcp::McpServer;
use endstop::wire::endpoint::is_loopback;
use endstop::wire::redact::{address, secrets_out};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

const KEYS: [&str; 7] = ["command", "url", "headers", "env", "tools", "timeout", "start_timeout"];

/// The configuration of a server. Header values are stored as written: `$NAME` stands for a
/// variable and is expanded when the run begins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerSettings {
    pub(crate) name: String,
    at: At,
    /// Header values by name. `None` means that the value was a literal, which a journal does not
    /// store because it may be a key.
    headers: BTreeMap<String, Option<String>>,
    env: Vec<String>,
    tools: Option<Vec<String>>,
    timeout: Option<String>,
    start_timeout: Option<String>,
}

/// The servers `[mcp.NAME]`.
pub(crate) struct Servers;

/// The servers of `--mcp`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFlags(Vec<String>);

impl ServerFlags {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FlagValue for ServerFlags {
    fn args(setting: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        <Vec<String> as FlagValue>::args(setting, command, complete)
    }

    fn read(matches: &ArgMatches, id: &str) -> ServerFlags {
        ServerFlags(FlagValue::read(matches, id))
    }

    // By server, because a flag overrides only the server of the same name.
    fn given(&self, _: &Spelling) -> Vec<(String, String)> {
        let names = self.0.iter().filter_map(|flag| flag.split_once('='));
        let names = names.map(|(name, _)| name.trim());
        names.map(|name| (format!("mcp.{name}"), format!("--mcp {name}=…"))).collect()
    }
}

impl Servers {
    /// Returns the servers for display, without any value that may be a secret.
    #[expect(clippy::ptr_arg, reason = "a row takes the value of its kind by reference")]
    pub(crate) fn shown(own: &Vec<ServerSettings>) -> Members {
        own.iter().map(|server| (format!(".{}", server.name), server.shown())).collect()
    }
}

impl Kind for Servers {
    type Own = Vec<ServerSettings>;
    type Flag = ServerFlags;

    fn take(own: &mut Vec<ServerSettings>, name: &str, value: &Value) -> Result<(), Problem> {
        let read = ServerSettings::of_table(name, value)
            .map_err(|problem| Problem::Whole(shown(&format!("[mcp.{name}]: {problem}"))))?;
        own.retain(|other| other.name != read.name);
        own.push(read);
        Ok(())
    }

    fn above(own: &mut Vec<ServerSettings>, given: &ServerFlags, _: &str) -> Result<(), String> {
        for flag in &given.0 {
            let server = ServerSettings::of_flag(flag).map_err(|failure| failure.message)?;
            // A flag replaces the server of the same name instead of adding to it, so that a file's
            // command is never combined with a flag's address.
            own.retain(|other| other.name != server.name);
            own.push(server);
        }
        Ok(())
    }

    fn json(own: &Vec<ServerSettings>) -> Value {
        plain(own)
    }

    fn save(own: &Vec<ServerSettings>) -> Value {
        plain(&own.iter().map(ServerSettings::saved).collect::<Vec<_>>())
    }

    fn restore(own: &mut Vec<ServerSettings>, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

/// The transport of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum At {
    /// A command line, for the shell.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
    Url(String),
}

/// The command or the address of a server, for display.
pub(crate) enum ServerPlace<'a> {
    Command(String),
    Url(&'a str),
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the name: a header contains a key, and so may a command line.
        f.debug_struct("ServerSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerSettings {
    fn new(name: &str, at: At) -> Result<ServerSettings, String> {
        // A `$NAME` is only expanded when the run begins, so it never reaches the journal.
        if let At::Url(url) = &at
            && !url.contains('$')
            && address(url) != *url
        {
            return Err(format!(
                "{}: the journal would store the credential in this address; use a variable as `$NAME`, or a header",
                address(url)
            ));
        }
        Ok(ServerSettings {
            name: name.to_owned(),
            at,
            headers: BTreeMap::new(),
            env: Vec::new(),
            tools: None,
            timeout: None,
            start_timeout: None,
        })
    }

    /// Parses `NAME=COMMAND ARGS…` or `NAME=https://…`.
    pub(crate) fn of_flag(text: &str) -> Result<ServerSettings> {
        let parts = text.split_once('=').map(|(name, place)| (name.trim(), place.trim()));
        let Some((name, place)) =
            parts.filter(|(name, place)| !name.is_empty() && !place.is_empty())
        else {
            return Err(Failure::usage("invalid --mcp: expected NAME=COMMAND or NAME=https://…"));
        };
        let is_url = place.starts_with("http://") || place.starts_with("https://");
        let at = if is_url { At::Url(place.to_owned()) } else { At::Line(place.to_owned()) };
        ServerSettings::new(name, at)
            .map_err(|problem| Failure::usage(format!("--mcp {name}: {problem}")))
    }

    /// Reads a table of endstop.toml. The error begins with the key.
    pub(crate) fn of_table(name: &str, value: &Value) -> Result<Self, String> {
        let table = value.as_object().ok_or("expected a table")?;
        let texts = |key: &str| -> Result<Option<Vec<String>>, String> {
            let Some(value) = table.get(key) else { return Ok(None) };
            let texts = value
                .as_array()
                .and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
            texts.map(Some).ok_or_else(|| format!("`{key}`: expected a list of strings"))
        };
        let time = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if parse_duration(text).is_some() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}`: expected a duration such as \"90s\" or \"10m\"")),
        };
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("`{key}`: {}", unknown_key(key, &KEYS)));
        }
        let at = match (table.get("command"), table.get("url")) {
            (Some(Value::String(line)), None) => At::Line(line.clone()),
            (Some(_), None) => At::Words(
                texts("command")
                    .map_err(|_| "`command`: expected a string or a list of strings")?
                    .unwrap_or_default(),
            ),
            (None, Some(Value::String(url))) => At::Url(url.clone()),
            (None, Some(_)) => return Err("`url`: expected a string".to_owned()),
            _ => return Err("expected either `command` or `url`".to_owned()),
        };
        let is_url = matches!(at, At::Url(_));
        for (key, fits) in [("headers", is_url), ("env", !is_url)] {
            if table.contains_key(key) && !fits {
                let other = if is_url { "`command`" } else { "`url`" };
                return Err(format!("`{key}` requires {other}"));
            }
        }
        let mut settings = ServerSettings::new(name, at)?;
        if let Some(headers) = table.get("headers") {
            let problem = "`headers`: expected a table of strings";
            for (name, value) in headers.as_object().ok_or(problem)? {
                let value = value.as_str().ok_or(problem)?;
                settings.headers.insert(name.clone(), Some(value.to_owned()));
            }
        }
        settings.env = texts("env")
            .map_err(|_| "`env`: expected a list of the variables that the server may read")?
            .unwrap_or_default();
        settings.tools = texts("tools")?;
        settings.timeout = time("timeout")?;
        settings.start_timeout = time("start_timeout")?;
        Ok(settings)
    }

    /// Returns the command line or the address, as written, for display.
    pub(crate) fn place(&self) -> ServerPlace<'_> {
        match &self.at {
            At::Line(line) => ServerPlace::Command(line.clone()),
            // Shown as a list, because joined with spaces it would hide the word boundaries.
            At::Words(words) => ServerPlace::Command(format!("{words:?}")),
            At::Url(url) => ServerPlace::Url(url),
        }
    }

    /// Returns the headers as written; a value that is not stored is empty.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref().unwrap_or("")))
    }

    /// Returns the variables that its command may read although their names look like those of
    /// secrets.
    pub(crate) fn variables(&self) -> &[String] {
        &self.env
    }

    /// Describes the server without any value that may be a secret.
    fn shown(&self) -> Value {
        let headers: Value =
            self.headers().map(|(name, _)| (name.to_owned(), json!("[redacted]"))).collect();
        match self.place() {
            ServerPlace::Command(line) => {
                json!({"command": secrets_out(&line), "env": self.variables()})
            }
            ServerPlace::Url(url) => json!({"url": address(url), "headers": headers}),
        }
    }

    /// Returns a copy for the journal, without literal header values.
    pub(crate) fn saved(&self) -> ServerSettings {
        let mut saved = self.clone();
        for value in saved.headers.values_mut() {
            value.take_if(|value| !only_names_variables(value));
        }
        saved
    }

    /// Builds the server, with variables expanded.
    pub(crate) fn server(&self, dir: Option<&Path>, allow_http: bool) -> Result<McpServer, String> {
        let mut server = match &self.at {
            At::Line(line) => McpServer::stdio(&self.name, line),
            At::Words(words) => McpServer::command(&self.name, words),
            At::Url(url) => {
                let whole = expanded(url)?;
                // A variable may hold a secret under any parameter name, so every expanded address
                // is protected.
                if *url != whole && !allow_http && in_clear(&whole) {
                    return Err(format!(
                        "{}: its variables would be sent unencrypted to another machine; use https://, or pass --allow-http",
                        shown(url)
                    ));
                }
                McpServer::http(&self.name, whole)
            }
        };
        if allow_http {
            server = server.allow_http();
        }
        for (name, value) in &self.headers {
            let Some(value) = value else {
                return Err(format!(
                    "the value of header `{name}` was not stored with the run because it was a literal; use a variable as `$NAME`, or start a new run"
                ));
            };
            server = server.header(name, expanded(value)?);
        }
        server = self.env.iter().fold(server, McpServer::allow_variable);
        if let Some(dir) = dir {
            server = server.in_dir(dir);
        }
        if let Some(tools) = &self.tools {
            server = server.only(tools);
        }
        let time = |text: &Option<String>| text.as_deref().and_then(parse_duration);
        if let Some(limit) = time(&self.timeout) {
            server = server.timeout(limit);
        }
        if let Some(limit) = time(&self.start_timeout) {
            server = server.ready_within(limit);
        }
        Ok(server)
    }
}

/// `true` if requests to this address reach another machine unencrypted.
fn in_clear(url: &str) -> bool {
    url::Url::parse(url)
        .is_ok_and(|url| url.scheme() == "http" && !url.host_str().is_some_and(is_loopback))
}

/// `true` if a header value consists of variables, of the name of a scheme and of separators, so
/// that it holds no part of a secret itself. In `$$` and in `sk-4fQ9$REST` the rest is literal.
pub(crate) fn only_names_variables(value: &str) -> bool {
    const SCHEMES: [&str; 6] = ["bearer", "basic", "token", "bot", "key", "apikey"];
    let mut parts = value.split('$');
    let mut literal = vec![parts.next().unwrap_or_default()];
    for part in parts {
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let rest = match part.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map(|(_, rest)| rest),
            None => Some(part.trim_start_matches(is_name)).filter(|rest| rest.len() < part.len()),
        };
        // No name follows: a dollar sign, or a value that cannot be expanded.
        let Some(rest) = rest else { return false };
        literal.push(rest);
    }
    let words = literal.iter().flat_map(|text| text.split(|c: char| " :=,;".contains(c)));
    let mut words = words.filter(|word| !word.is_empty());
    literal.len() > 1 && words.all(|word| SCHEMES.contains(&&*word.to_ascii_lowercase()))
}

/// Expands `$NAME` and `${NAME}` from the environment; `$$` is a dollar sign.
pub(crate) fn expanded(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let inner = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        // Without braces the name ends at the first character that a name cannot contain.
        let (name, after) = inner.unwrap_or_else(|| {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            after.split_at(after.find(|c| !fits(c)).unwrap_or(after.len()))
        });
        // An unset variable is an error: an empty value would send a request without its key.
        let value = std::env::var(name).map_err(|_| {
            format!("the variable `{name}` is not set (write `$$` for a dollar sign)")
        })?;
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_names_command_or_address() {
        let line = ServerSettings::of_flag("files=npx -y server --root=/x").unwrap();
        assert_eq!(
            (line.name.as_str(), line.at),
            ("files", At::Line("npx -y server --root=/x".into()))
        );
        let url = ServerSettings::of_flag("web = https://host/mcp?a=b").unwrap();
        assert_eq!(url.at, At::Url("https://host/mcp?a=b".into()));
        for wrong in ["files", "=x", "files=", ""] {
            assert!(ServerSettings::of_flag(wrong).is_err(), "{wrong}");
        }
        let secret = ServerSettings::of_flag("web=https://host/?key=abcdef").unwrap_err();
        assert!(secret.message.contains("$NAME") && !secret.message.contains("abcdef"));
    }

    #[test]
    fn table_errors_name_the_key() {
        let table = json!({"command": ["a", "b"], "env": ["X"], "tools": ["t"], "timeout": "5s"});
        let read = ServerSettings::of_table("s", &table).unwrap();
        assert_eq!(read.at, At::Words(vec!["a".into(), "b".into()]));
        for (table, words) in [
            (json!("x"), "expected a table"),
            (json!({}), "either `command` or `url`"),
            (json!({"command": "a", "url": "b"}), "either"),
            (json!({"command": 1}), "`command`: expected"),
            (json!({"url": 1}), "`url`: expected"),
            (json!({"url": "http://a", "env": ["X"]}), "`env` requires `command`"),
            (json!({"command": "a", "headers": {}}), "`headers` requires `url`"),
            (json!({"url": "http://a", "headers": {"k": 1}}), "table of strings"),
            (json!({"command": "a", "env": {"K": "v"}}), "list of the variables"),
            (json!({"command": "a", "timeout": "soon"}), "`timeout`: expected a duration"),
            (json!({"comand": "a"}), "did you mean `command`"),
        ] {
            let problem = ServerSettings::of_table("s", &table).unwrap_err();
            assert!(problem.contains(words), "{table}: {problem}");
        }
    }

    #[test]
    fn saved_settings_have_no_header_literals() {
        let table =
            json!({"url": "http://a", "headers": {"A": "Bearer $PATH", "B": "written out"}});
        let read = ServerSettings::of_table("s", &table).unwrap();
        assert!(read.server(None, true).is_ok());
        let saved = serde_json::to_value(read.saved()).unwrap();
        assert!(
            !saved.to_string().contains("written out") && !format!("{read:?}").contains("written")
        );
        let again: ServerSettings = serde_json::from_value(saved).unwrap();
        assert!(again.server(None, true).unwrap_err().contains("header `B` was not stored"));
    }

    #[test]
    fn value_with_literal_part_not_stored() {
        for named in ["$A", "Bearer $A", "token=${A}", "$A:$B", "Basic ${A_1}"] {
            assert!(only_names_variables(named), "{named}");
        }
        for literal in
            ["abc", "Bearer abc", "pa$$word", "sk-4fQ9$A", "$A-4fQ9", "${A}xTz71", "$", "${A", ""]
        {
            assert!(!only_names_variables(literal), "{literal}");
        }
    }

    #[test]
    fn variables_are_expanded() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(expanded("a $PATH/b ${PATH}c $$").unwrap(), format!("a {path}/b {path}c $"));
        assert!(expanded("$ENDSTOP_NO_SUCH_VARIABLE").unwrap_err().contains("is not set"));
        assert!(expanded("cost: 5$").is_err());
    }
}
