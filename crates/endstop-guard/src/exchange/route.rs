//! Routes: the meaning of a method and a path.
//!
//! Clients put different prefixes before the same paths (`/v1`, `/openai/deployments/D`, nothing), so
//! a path is recognised by its end.

use super::run_name::{InvalidRunName, RunName};
use endstop_wire::WireFormat;
use percent_encoding::percent_decode_str;
use std::fmt;

/// The longest target of a request, in bytes.
const LONGEST_TARGET: usize = 64 << 10;
/// The longest name of a model that is echoed, in characters.
pub(super) const LONGEST_MODEL: usize = 256;

/// The form in which a client expects the answer to a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One JSON object.
    Whole,
    /// Server-sent events.
    Events,
    /// One JSON array that grows (Gemini without `alt=sse`).
    Array,
    /// JSON objects, one in each line (Ollama).
    Lines,
    /// Amazon's binary frames.
    Frames,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// A model call.
    Model {
        /// The format of the call.
        format: WireFormat,
        /// The delivery, if the path decides it. Otherwise the body does.
        delivery: Option<Delivery>,
    },
    /// A count of the tokens of a prompt; costs nothing.
    CountTokens,
    /// A list or a description of models.
    Models,
    /// Embeddings.
    Embeddings,
    /// Claude Code's test of the connection.
    Hello,
    /// Anything else, which passes through.
    Other,
}

/// A request line, understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Route {
    /// The run in the prefix `/run/NAME`.
    pub run: Option<RunName>,
    /// The path without that prefix, and the query, which may have the API key: redact it before
    /// it is logged. It starts with `/`.
    pub target: String,
    /// The kind of the call.
    pub call: Call,
    /// The model, if the path names it.
    pub model: Option<String>,
}

impl Route {
    /// `true` if the path is that of OpenAI's compaction of a history.
    pub fn is_compaction(&self) -> bool {
        let path = self.target.split('?').next().unwrap_or_default();
        path.trim_end_matches('/').ends_with(COMPACTION)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query may have the API key.
        let path = self.target.split('?').next().unwrap_or_default();
        let Route { run, call, model, .. } = self;
        f.debug_struct("Route")
            .field("run", run)
            .field("path", &path)
            .field("call", call)
            .field("model", model)
            .finish_non_exhaustive()
    }
}

/// The reason why a request line is refused with the status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The name after `/run/` is not valid.
    #[error(transparent)]
    Run(#[from] InvalidRunName),
    /// The target is not a plain path.
    #[error(
        "invalid request target: expected a path that starts with `/`, without control characters"
    )]
    Target,
    /// The path has a `..` segment, which could leave the upstream's prefix.
    #[error("invalid request target: a path must not contain a `..` segment")]
    Traversal,
}

/// Reads the method and the target of a request.
///
/// ```
/// use endstop_guard::exchange::{Call, route};
/// use endstop_wire::WireFormat;
/// let route = route("POST", "/run/nightly/v1/messages?beta=true")?;
/// assert_eq!(route.run.unwrap().as_str(), "nightly");
/// assert_eq!(route.target, "/v1/messages?beta=true");
/// assert_eq!(route.call, Call::Model { format: WireFormat::Anthropic, delivery: None });
/// # Ok::<(), endstop_guard::exchange::RouteError>(())
/// ```
///
/// # Errors
/// The target is not a path, leaves its folder, or names an invalid run.
pub fn route(method: &str, target: &str) -> Result<Route, RouteError> {
    let plain = target.len() <= LONGEST_TARGET && target.bytes().all(|b| (0x21..0x7f).contains(&b));
    if !plain || !target.starts_with('/') {
        return Err(RouteError::Target);
    }
    let (run, target) = split_run(target)?;
    let path = target.split_once('?').map_or(target.as_str(), |(path, _)| path);
    // Servers decode segments before they resolve dots.
    if path.split('/').any(|segment| percent_decode_str(segment).eq(*b"..")) {
        return Err(RouteError::Traversal);
    }
    let (call, model) = call(method, path, &target);
    Ok(Route { run, target, call, model })
}

fn split_run(target: &str) -> Result<(Option<RunName>, String), RouteError> {
    let Some(rest) = target.strip_prefix("/run/") else { return Ok((None, target.to_owned())) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let name = RunName::new(name)?;
    // A bare prefix stands for the root, as without a prefix.
    let slash = if rest.starts_with('/') { "" } else { "/" };
    Ok((Some(name), format!("{slash}{rest}")))
}

const fn model(format: WireFormat) -> Call {
    Call::Model { format, delivery: None }
}

const fn delivered(format: WireFormat, delivery: Delivery) -> Call {
    Call::Model { format, delivery: Some(delivery) }
}

/// OpenAI's compaction of a history, which has the form of a model call.
const COMPACTION: &str = "/responses/compact";

/// Ends of paths of POST requests. The first row that fits counts.
const POSTS: &[(&str, Call)] = &[
    ("/chat/completions", model(WireFormat::OpenAiChat)),
    (COMPACTION, delivered(WireFormat::OpenAiResponses, Delivery::Whole)),
    ("/responses/input_tokens", Call::CountTokens),
    ("/responses", model(WireFormat::OpenAiResponses)),
    ("/messages/count_tokens", Call::CountTokens),
    ("/messages", model(WireFormat::Anthropic)),
    ("/embeddings", Call::Embeddings),
    ("/api/chat", model(WireFormat::Ollama)),
    ("/v2/chat", model(WireFormat::CohereV2)),
    ("/api/embed", Call::Embeddings),
    ("/count-tokens", Call::CountTokens),
];

/// Last words of paths such as `/models/M:generateContent` and `/model/M/invoke`.
const VERBS: &[(&str, Call)] = &[
    (":generateContent", delivered(WireFormat::Gemini, Delivery::Whole)),
    (":streamGenerateContent", delivered(WireFormat::Gemini, Delivery::Array)),
    (":countTokens", Call::CountTokens),
    (":embedContent", Call::Embeddings),
    (":batchEmbedContents", Call::Embeddings),
    // Claude on Vertex: Anthropic's format, with the model in the path.
    (":rawPredict", delivered(WireFormat::Anthropic, Delivery::Whole)),
    (":streamRawPredict", delivered(WireFormat::Anthropic, Delivery::Events)),
    ("/invoke", delivered(WireFormat::BedrockInvoke, Delivery::Whole)),
    ("/invoke-with-response-stream", delivered(WireFormat::BedrockInvoke, Delivery::Frames)),
    ("/converse", delivered(WireFormat::BedrockConverse, Delivery::Whole)),
    ("/converse-stream", delivered(WireFormat::BedrockConverse, Delivery::Frames)),
];

fn call(method: &str, path: &str, target: &str) -> (Call, Option<String>) {
    let path = path.trim_end_matches('/');
    // Claude Code asks with HEAD; any answer will do.
    if path.ends_with("/api/hello") {
        return (Call::Hello, None);
    }
    if method == "GET" {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        // Some servers answer for a single model under the same path.
        let models = ["/models", "/api/tags"].iter().any(|end| path.ends_with(end));
        let listed = models || parent.ends_with("/models");
        return (if listed { Call::Models } else { Call::Other }, None);
    }
    if method != "POST" {
        return (Call::Other, None);
    }
    if let Some((verb, call)) = VERBS.iter().find(|(verb, _)| path.ends_with(verb)) {
        return in_path(*call, &path[..path.len() - verb.len()], target);
    }
    // Messages of OpenAI's Assistants share their last word with Anthropic's.
    let found = POSTS.iter().find(|(end, _)| path.ends_with(end) && !path.contains("/threads/"));
    (found.map_or(Call::Other, |(_, call)| *call), None)
}

/// Completes a call whose path names the model at the end of `before`.
fn in_path(call: Call, before: &str, target: &str) -> (Call, Option<String>) {
    let Some((parents, model)) = before.rsplit_once('/') else { return (Call::Other, None) };
    if !["/models", "/model"].iter().any(|folder| parents.ends_with(folder)) {
        return (Call::Other, None);
    }
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let call = match call {
        // Claude on Vertex counts tokens under the name of a model.
        Call::Model { format: WireFormat::Anthropic, .. } if model == "count-tokens" => {
            Call::CountTokens
        }
        // Other publishers' models on Vertex have formats of their own.
        Call::Model { format: WireFormat::Anthropic, .. }
            if !parents.ends_with("/publishers/anthropic/models") =>
        {
            Call::Other
        }
        Call::Model { format, delivery: Some(Delivery::Array) }
            if query.split('&').any(|pair| pair == "alt=sse") =>
        {
            delivered(format, Delivery::Events)
        }
        call => call,
    };
    let model = percent_decode_str(model).decode_utf8_lossy();
    (call, Some(model.chars().take(LONGEST_MODEL).collect()))
}
