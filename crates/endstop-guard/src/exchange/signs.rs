//! Signs by which clients are recognised in headers and in bodies, with the headers of known clients
//! as a table.

use super::digest::{Fingerprint, Mixer, Salt};
use super::run_name::{ClientId, InvalidRunName, RunName};
use serde::Deserialize;

/// The meaning of an id that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A session: the main thread and its sub-agents.
    Session,
    /// A sub-agent of the session.
    Agent,
    /// The sub-agent that started this one.
    ParentAgent,
    /// A thread of the session.
    Thread,
    /// The thread that started this one.
    ParentThread,
    /// A session that is one thread; sub-agents have their own.
    Conversation,
    /// The session that started this one.
    ParentConversation,
    /// A mark of sub-agents, with any value.
    Subagent,
    /// A JSON object with more signs, as codex sends it.
    TurnMetadata,
}

/// A client program and the headers that it identifies its calls with.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Name of the program.
    pub name: &'static str,
    /// Beginning of its `User-Agent`.
    pub user_agent: &'static str,
    /// Beginning of the names of headers that only this program sends. A gateway replaces the `User-Agent`, and passes these
    /// on. Empty: it has none.
    pub own_headers: &'static str,
    /// `true` if it stops at once on the status 402, and not on 400.
    pub stops_on_402: bool,
    /// `true` if it completes the arguments of a tool call that was cut, and runs the call when it has the finish value.
    pub completes_cut_calls: bool,
    /// Names of its headers in lower case, and their meanings.
    pub headers: &'static [(&'static str, Sign)],
}

/// Known clients. A header counts whatever the `User-Agent` is, because users can change that.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "Claude Code",
        user_agent: "claude-cli",
        own_headers: "x-claude-code-",
        stops_on_402: true,
        completes_cut_calls: false,
        headers: &[
            ("x-claude-code-session-id", Sign::Session),
            ("x-claude-code-agent-id", Sign::Agent),
            ("x-claude-code-parent-agent-id", Sign::ParentAgent),
        ],
    },
    Client {
        name: "codex",
        user_agent: "codex",
        own_headers: "x-codex-",
        stops_on_402: false,
        completes_cut_calls: false,
        headers: &[
            ("session-id", Sign::Session),
            ("thread-id", Sign::Thread),
            // Older versions.
            ("session_id", Sign::Session),
            ("conversation_id", Sign::Thread),
            ("x-codex-parent-thread-id", Sign::ParentThread),
            ("x-openai-subagent", Sign::Subagent),
            ("x-codex-turn-metadata", Sign::TurnMetadata),
        ],
    },
    Client {
        name: "opencode",
        user_agent: "opencode/",
        own_headers: "",
        stops_on_402: false,
        completes_cut_calls: false,
        headers: &[
            ("x-session-id", Sign::Conversation),
            ("x-parent-session-id", Sign::ParentConversation),
        ],
    },
    Client {
        name: "Gemini CLI",
        user_agent: "GeminiCLI",
        own_headers: "",
        stops_on_402: false,
        completes_cut_calls: false,
        headers: &[],
    },
    Client {
        name: "Qwen Code",
        user_agent: "QwenCode/",
        own_headers: "",
        stops_on_402: false,
        completes_cut_calls: true,
        headers: &[],
    },
];

/// Ids and marks of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// The session.
    pub session: Option<ClientId>,
    /// The sub-agent.
    pub agent: Option<ClientId>,
    /// The sub-agent that started it.
    pub parent_agent: Option<ClientId>,
    /// The thread.
    pub thread: Option<ClientId>,
    /// The thread that started it.
    pub parent_thread: Option<ClientId>,
    /// The session that is one thread.
    pub conversation: Option<ClientId>,
    /// The session that started it.
    pub parent_conversation: Option<ClientId>,
    /// `true` if the request is of a sub-agent.
    pub subagent: bool,
    /// `true` if the request summarises the history.
    pub compaction: bool,
}

/// The members of codex's metadata that matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TurnMetadata {
    request_kind: Option<String>,
    session_id: Option<String>,
    thread_id: Option<String>,
    parent_thread_id: Option<String>,
    subagent_kind: Option<String>,
}

impl Signs {
    /// Takes an id with this meaning, unless one was taken before.
    pub fn take(&mut self, sign: Sign, value: &str) {
        let place = match sign {
            Sign::Session => &mut self.session,
            Sign::Agent => &mut self.agent,
            Sign::ParentAgent => &mut self.parent_agent,
            Sign::Thread => &mut self.thread,
            Sign::ParentThread => &mut self.parent_thread,
            Sign::Conversation => &mut self.conversation,
            Sign::ParentConversation => &mut self.parent_conversation,
            Sign::Subagent => {
                self.subagent |= !value.trim().is_empty();
                return;
            }
            Sign::TurnMetadata => return self.take_metadata(value),
        };
        if place.is_none() {
            *place = ClientId::of(value);
        }
    }

    fn take_metadata(&mut self, json: &str) {
        // Anything else than the expected object is ignored, because the ids are optional.
        let Ok(metadata) = serde_json::from_str::<TurnMetadata>(json) else { return };
        for (sign, id) in [
            (Sign::Session, metadata.session_id),
            (Sign::Thread, metadata.thread_id),
            (Sign::ParentThread, metadata.parent_thread_id),
            (Sign::Subagent, metadata.subagent_kind),
        ] {
            self.take(sign, id.as_deref().unwrap_or_default());
        }
        self.compaction |= metadata.request_kind.as_deref() == Some("compaction");
    }

    /// Fills gaps from other signs of the same request.
    pub(super) fn or(&self, other: &Signs) -> Signs {
        let first = |a: &Option<ClientId>, b: &Option<ClientId>| a.clone().or_else(|| b.clone());
        Signs {
            session: first(&self.session, &other.session),
            agent: first(&self.agent, &other.agent),
            parent_agent: first(&self.parent_agent, &other.parent_agent),
            thread: first(&self.thread, &other.thread),
            parent_thread: first(&self.parent_thread, &other.parent_thread),
            conversation: first(&self.conversation, &other.conversation),
            parent_conversation: first(&self.parent_conversation, &other.parent_conversation),
            subagent: self.subagent || other.subagent,
            compaction: self.compaction || other.compaction,
        }
    }
}

/// The facts in the headers of a request, without any secret.
#[derive(Clone, Debug, Default)]
pub struct ClientFacts {
    /// The client, if it is known.
    pub client: Option<&'static Client>,
    /// The header `x-endstop-run`.
    pub run: Option<Result<RunName, InvalidRunName>>,
    /// Ids in the headers.
    pub signs: Signs,
    /// Fingerprint of the API key.
    pub key: Option<Fingerprint>,
    /// `true` if the key belongs to a subscription, so that calls have no bill of their own.
    pub subscription: bool,
    /// `true` if the client asks for a WebSocket.
    pub websocket: bool,
    /// `true` if the client is a run of Endstop, which has an ending for a refusal and would take a text for an answer.
    pub is_endstop: bool,
}

impl ClientFacts {
    /// Reads the headers of a request, and the key in its query if it has one there. The salt hides
    /// the key in its fingerprint.
    ///
    /// ```
    /// use endstop_guard::exchange::{ClientFacts, Salt};
    /// let headers = [("user-agent", &b"claude-cli/2.1"[..]), ("x-api-key", &b"secret"[..])];
    /// let facts = ClientFacts::read(headers, "/v1/messages", &Salt::new([7; 16]));
    /// assert_eq!(facts.client.map(|client| client.name), Some("Claude Code"));
    /// assert!(facts.key.is_some() && !format!("{facts:?}").contains("secret"));
    /// ```
    pub fn read<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        target: &str,
        salt: &Salt,
    ) -> ClientFacts {
        let mut facts = ClientFacts::default();
        for (name, value) in headers {
            // HTTP/2 sends lower case, HTTP/1.1 what the client wrote.
            let name = name.to_ascii_lowercase();
            let text = String::from_utf8_lossy(value);
            facts.take(&name, text.trim(), salt);
        }
        // Google's clients may send the key in the URL.
        if facts.key.is_none() {
            let query = target.split_once('?').map_or("", |(_, query)| query);
            let key = query.split('&').find_map(|pair| pair.strip_prefix("key="));
            facts.key = key.filter(|key| !key.is_empty()).map(|key| of_key(salt, key));
        }
        facts
    }

    fn take(&mut self, name: &str, value: &str, salt: &Salt) {
        match name {
            "user-agent" => {
                let named = CLIENTS.iter().find(|one| value.starts_with(one.user_agent));
                self.client = named.or(self.client);
                self.is_endstop = value.starts_with("endstop/");
            }
            "x-endstop-run" => self.run = Some(RunName::new(value)),
            // codex tries a WebSocket first.
            "upgrade" => self.websocket = value.eq_ignore_ascii_case("websocket"),
            "chatgpt-account-id" => self.subscription = true,
            "authorization" | "x-api-key" | "x-goog-api-key" | "api-key" => {
                // Subscriptions of Claude have tokens with this prefix.
                let key = bearer(value);
                self.subscription |= key.starts_with("sk-ant-oat");
                if self.key.is_none() && !key.is_empty() {
                    self.key = Some(of_key(salt, key));
                }
            }
            _ => {
                let owns = |one: &&Client| {
                    !one.own_headers.is_empty() && name.starts_with(one.own_headers)
                };
                self.client = self.client.or_else(|| CLIENTS.iter().find(owns));
                let known = CLIENTS.iter().flat_map(|client| client.headers);
                if let Some((_, sign)) = known.into_iter().find(|(header, _)| *header == name) {
                    self.signs.take(*sign, value);
                }
            }
        }
    }
}

fn of_key(salt: &Salt, key: &str) -> Fingerprint {
    Mixer::new(salt, "key").add(key.as_bytes()).done()
}

/// Returns the part of a header that names the account: the key, or for Amazon's signatures the id
/// of the access key, because the rest changes with each request.
fn bearer(value: &str) -> &str {
    if value.starts_with("AWS")
        && let Some((_, rest)) = value.split_once("Credential=")
    {
        return rest.split(['/', ',']).next().unwrap_or_default();
    }
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => value,
    }
}
