//! MCP servers of a run: `[mcp.NAME]` in endstop.toml, and `--mcp` above it.
//!
//! ```ignore
//! let settings = ServerSettings::of_flag("files=mcp-server-filesystem /srv/data")?;
//! let servers = Servers::connect(&[settings], None, false).await?;
//! servers.close().await; // no process is left
//! ```

use crate::trust::shown;
use crate::{Failure, Result, output};
use endstop::core::limits::{parse_duration, unknown_key};
use endstop::mcp::{McpServer, McpTools};
use endstop::tool::Tool;
use endstop::wire::endpoint::is_loopback;
use endstop::wire::redact::{KnownKeys, address};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;

const KEYS: [&str; 7] = ["command", "url", "headers", "env", "tools", "timeout", "start_timeout"];

/// A server as it is configured. Values of headers are kept as they were written: `$NAME` stands for
/// a variable, and is read when the run begins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerSettings {
    pub(crate) name: String,
    at: At,
    /// `None`: it was written out, and a journal does not keep it.
    headers: BTreeMap<String, Option<String>>,
    env: Vec<String>,
    tools: Option<Vec<String>>,
    timeout: Option<String>,
    start_timeout: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum At {
    /// For the shell.
    Line(String),
    /// A program and its arguments.
    Words(Vec<String>),
    Url(String),
}

/// What a server is, for a person.
pub(crate) enum ServerPlace<'a> {
    Command(String),
    Url(&'a str),
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A header has its key, and so may a command line.
        f.debug_struct("ServerSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerSettings {
    fn new(name: &str, at: At) -> std::result::Result<ServerSettings, String> {
        if let At::Url(url) = &at
            && !url.contains('$')
            && address(url) != *url
        {
            return Err(format!(
                "{}: a credential in the address would be kept with the run: give it as `$NAME` of a variable, or as a header",
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

    /// `NAME=COMMAND ARGS…` or `NAME=https://…`.
    pub(crate) fn of_flag(text: &str) -> Result<ServerSettings> {
        let parts = text.split_once('=').map(|(name, place)| (name.trim(), place.trim()));
        let Some((name, place)) =
            parts.filter(|(name, place)| !name.is_empty() && !place.is_empty())
        else {
            return Err(Failure::usage("--mcp wants NAME=COMMAND, or NAME=https://…"));
        };
        let is_url = place.starts_with("http://") || place.starts_with("https://");
        let at = if is_url { At::Url(place.to_owned()) } else { At::Line(place.to_owned()) };
        ServerSettings::new(name, at)
            .map_err(|problem| Failure::usage(format!("--mcp {name}: {problem}")))
    }

    /// A table of endstop.toml. The error begins with the key.
    pub(crate) fn of_table(name: &str, value: &Value) -> std::result::Result<Self, String> {
        let table = value.as_object().ok_or("wants a table")?;
        let texts = |key: &str| -> std::result::Result<Option<Vec<String>>, String> {
            let Some(value) = table.get(key) else { return Ok(None) };
            let texts = value
                .as_array()
                .and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
            texts.map(Some).ok_or_else(|| format!("`{key}` wants a list of texts"))
        };
        let time = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if parse_duration(text).is_some() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}` wants a duration such as \"90s\" or \"10m\"")),
        };
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("`{key}` is an {}", unknown_key(key, &KEYS)));
        }
        let at = match (table.get("command"), table.get("url")) {
            (Some(Value::String(line)), None) => At::Line(line.clone()),
            (Some(_), None) => At::Words(
                texts("command")
                    .map_err(|_| "`command` wants a text, or a list of texts")?
                    .unwrap_or_default(),
            ),
            (None, Some(Value::String(url))) => At::Url(url.clone()),
            (None, Some(_)) => return Err("`url` wants a text in quotes".to_owned()),
            _ => return Err("wants either `command` or `url`".to_owned()),
        };
        let is_url = matches!(at, At::Url(_));
        for (key, fits) in [("headers", is_url), ("env", !is_url)] {
            if table.contains_key(key) && !fits {
                let other = if is_url { "`command`" } else { "`url`" };
                return Err(format!("`{key}` goes with {other}"));
            }
        }
        let mut settings = ServerSettings::new(name, at)?;
        if let Some(headers) = table.get("headers") {
            let problem = "`headers` wants a table of texts";
            for (name, value) in headers.as_object().ok_or(problem)? {
                let value = value.as_str().ok_or(problem)?;
                settings.headers.insert(name.clone(), Some(value.to_owned()));
            }
        }
        settings.env = texts("env")
            .map_err(|_| "`env` wants a list of names of variables that it may see")?
            .unwrap_or_default();
        settings.tools = texts("tools")?;
        settings.timeout = time("timeout")?;
        settings.start_timeout = time("start_timeout")?;
        Ok(settings)
    }

    /// What it starts or asks, for a person: a command line, or an address as it is written.
    pub(crate) fn place(&self) -> ServerPlace<'_> {
        match &self.at {
            At::Line(line) => ServerPlace::Command(line.clone()),
            // As a list, so that no blank hides where a word ends.
            At::Words(words) => ServerPlace::Command(format!("{words:?}")),
            At::Url(url) => ServerPlace::Url(url),
        }
    }

    /// The headers that are sent, as they are written; a value that is not stored is empty.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref().unwrap_or("")))
    }

    /// The variables that its command may see although their names look like those of secrets.
    pub(crate) fn variables(&self) -> &[String] {
        &self.env
    }

    /// What a journal keeps: no value of a header that was written out.
    pub(crate) fn saved(&self) -> ServerSettings {
        let mut saved = self.clone();
        for value in saved.headers.values_mut() {
            value.take_if(|value| !value.contains('$'));
        }
        saved
    }

    /// The server, with the variables read.
    fn server(
        &self,
        dir: Option<&Path>,
        allow_http: bool,
    ) -> std::result::Result<McpServer, String> {
        let mut server = match &self.at {
            At::Line(line) => McpServer::stdio(&self.name, line),
            At::Words(words) => McpServer::command(&self.name, words),
            At::Url(url) => {
                let whole = expanded(url)?;
                // What is in a variable may be a secret, whatever the parameter is called.
                if *url != whole && !allow_http && in_clear(&whole) {
                    return Err(format!(
                        "{}: its variables would be sent unencrypted to another machine: use https://, or allow it with --allow-http",
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
                    "the header `{name}` was written out, and is not kept: write it as `$NAME` of a variable, or begin a new run"
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

/// Whether what is sent to this address can be read on the way to another machine.
fn in_clear(url: &str) -> bool {
    reqwest::Url::parse(url)
        .is_ok_and(|url| url.scheme() == "http" && !url.host_str().is_some_and(is_loopback))
}

/// A text with `$NAME` and `${NAME}` as in the environment; `$$` is a dollar.
fn expanded(text: &str) -> std::result::Result<String, String> {
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
        let (name, after) = inner.unwrap_or_else(|| {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            after.split_at(after.find(|c| !fits(c)).unwrap_or(after.len()))
        });
        let value = std::env::var(name)
            .map_err(|_| format!("the variable `{name}` is not set (`$$` is a dollar)"))?;
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// The servers of a run that are there. Where it is dropped their processes are killed.
#[derive(Default)]
pub(crate) struct Servers {
    all: Vec<Arc<McpTools>>,
    secrets: KnownKeys,
}

impl Servers {
    /// Connects to all of them at once; the first that cannot be used is the error.
    pub(crate) async fn connect(
        settings: &[ServerSettings],
        dir: Option<&Path>,
        allow_http: bool,
    ) -> Result<Servers> {
        let mut secrets = KnownKeys::default();
        // Where one cannot be used the others are let go of.
        let mut connecting = JoinSet::new();
        for (at, settings) in settings.iter().enumerate() {
            let server = settings.server(dir, allow_http).map_err(|problem| {
                Failure::usage(format!("MCP server `{}`: {problem}", settings.name))
            })?;
            secrets = secrets.and(&server.known_keys());
            connecting.spawn(async move { (at, server.connect().await) });
        }
        let mut all = BTreeMap::new();
        while let Some(one) = connecting.join_next().await {
            let (at, connected) = one.map_err(|error| Failure::fault(format!("--mcp: {error}")))?;
            let tools = connected.map_err(|error| Failure::usage(error.to_string()))?;
            for problem in tools.left_out() {
                output::note(&format!("⚠ MCP server `{}`: {problem}", tools.name()));
            }
            all.insert(at, Arc::new(tools));
        }
        Ok(Servers { all: all.into_values().collect(), secrets })
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> + '_ {
        self.all.iter().flat_map(|server| server.tools())
    }

    /// The values of their headers.
    pub(crate) fn secrets(&self) -> &KnownKeys {
        &self.secrets
    }

    /// Ends all of them at once; returns when they are gone.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for server in self.all.iter().map(Arc::clone) {
            closing.spawn(async move { server.close().await });
        }
        // Each has a bound of its own.
        while closing.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_flag_names_a_command_or_an_address() {
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
    fn a_table_is_read_and_its_mistakes_are_named() {
        let table = json!({"command": ["a", "b"], "env": ["X"], "tools": ["t"], "timeout": "5s"});
        let read = ServerSettings::of_table("s", &table).unwrap();
        assert_eq!(read.at, At::Words(vec!["a".into(), "b".into()]));
        for (table, words) in [
            (json!("x"), "wants a table"),
            (json!({}), "either `command` or `url`"),
            (json!({"command": "a", "url": "b"}), "either"),
            (json!({"command": 1}), "`command` wants"),
            (json!({"url": 1}), "`url` wants"),
            (json!({"url": "http://a", "env": ["X"]}), "`env` goes with `command`"),
            (json!({"command": "a", "headers": {}}), "`headers` goes with `url`"),
            (json!({"url": "http://a", "headers": {"k": 1}}), "table of texts"),
            (json!({"command": "a", "env": {"K": "v"}}), "names of variables"),
            (json!({"command": "a", "timeout": "soon"}), "`timeout` wants a duration"),
            (json!({"comand": "a"}), "did you mean `command`"),
        ] {
            let problem = ServerSettings::of_table("s", &table).unwrap_err();
            assert!(problem.contains(words), "{table}: {problem}");
        }
    }

    #[test]
    fn what_a_journal_keeps_has_no_value_of_a_header() {
        let table =
            json!({"url": "http://a", "headers": {"A": "Bearer $PATH", "B": "written out"}});
        let read = ServerSettings::of_table("s", &table).unwrap();
        assert!(read.server(None, true).is_ok());
        let saved = serde_json::to_value(read.saved()).unwrap();
        assert!(
            !saved.to_string().contains("written out") && !format!("{read:?}").contains("written")
        );
        let again: ServerSettings = serde_json::from_value(saved).unwrap();
        assert!(again.server(None, true).unwrap_err().contains("header `B` was written out"));
    }

    #[test]
    fn variables_are_read() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(expanded("a $PATH/b ${PATH}c $$").unwrap(), format!("a {path}/b {path}c $"));
        assert!(expanded("$ENDSTOP_NO_SUCH_VARIABLE").unwrap_err().contains("is not set"));
        assert!(expanded("cost: 5$").is_err());
    }
}
