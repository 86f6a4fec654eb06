//! A request line: the run in its prefix, and the call behind it; the provider of a call that is not a model call.

use super::run_name::{InvalidRunName, RunName};
use endstop_wire::WireFormat;
use endstop_wire::route::{COMPACTION, recognise};
pub use endstop_wire::route::{Call, Delivery, Metered};
use percent_encoding::percent_decode_str;
use std::fmt;

/// The longest target of a request, in bytes.
const LONGEST_TARGET: usize = 64 << 10;
/// The longest name of a model that is echoed, in characters.
const LONGEST_MODEL: usize = 256;

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
    /// Another model that the path names, such as a deployment of Azure.
    pub deployment: Option<String>,
    /// The id of a response that the provider stores, if the path names it.
    pub stored: Option<String>,
    /// `true` if the path is another spelling of one that costs, or begins like one.
    pub is_respelt: bool,
    /// The format of the model call below whose path this call is, which costs nothing by itself.
    pub below: Option<WireFormat>,
    /// `true` if the same path costs with the method POST, which a server may not distinguish.
    pub costs_posted: bool,
}

impl Route {
    /// Returns the model that a call asks for, and another one that it names: its path and its body can differ.
    pub fn models(&self, in_body: Option<String>) -> (Option<String>, Option<String>) {
        // The name is echoed, so it is bounded like one in a path.
        let in_body = in_body.map(|mut model| {
            if let Some((end, _)) = model.char_indices().nth(LONGEST_MODEL) {
                model.truncate(end);
            }
            model
        });
        let (model, other) = match (&self.model, in_body) {
            (Some(in_path), named) => (Some(in_path.clone()), named),
            (None, Some(named)) => (Some(named), self.deployment.clone()),
            (None, None) => (self.deployment.clone(), None),
        };
        let is_same = |name: &String| {
            // Google's bodies have the collection in the name.
            let name = name.strip_prefix("models/").unwrap_or(name);
            model.as_ref().is_some_and(|model| model.eq_ignore_ascii_case(name))
        };
        let other = other.filter(|name| !is_same(name));
        (model, other)
    }

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
    let found = recognise(method, &target);
    let endstop_wire::route::Recognised { call, model, deployment, id: stored, is_respelt, below } =
        found;
    let posted = recognise("POST", &target);
    let costs_posted = call.costs() || posted.call.costs() || posted.is_respelt;
    Ok(Route { run, target, call, model, deployment, stored, is_respelt, below, costs_posted })
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

/// Returns the format whose provider a request is meant for, by its path, its query and its headers.
/// `None` if nothing in it tells. A call such as a list of models carries the key of its provider, so it must not go to
/// another one's address.
///
/// ```
/// use endstop_guard::exchange::owner;
/// use endstop_wire::WireFormat;
/// let header = |name: &str| (name == "x-api-key").then_some("secret");
/// assert_eq!(owner("/v1/models", header), Some(WireFormat::Anthropic));
/// assert_eq!(owner("/v1/models", |_| None), None);
/// ```
pub fn owner<'a>(
    target: &str,
    header: impl Fn(&'static str) -> Option<&'a str>,
) -> Option<WireFormat> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let authorization = header("authorization").unwrap_or_default();
    let (scheme, key) = authorization.split_once(' ').unwrap_or((authorization, ""));
    // Headers first: several providers have the same paths.
    if header("anthropic-version").is_some()
        || header("x-api-key").is_some()
        || key.starts_with("sk-ant-")
    {
        return Some(WireFormat::Anthropic);
    }
    let cohere = header("x-fern-sdk-name").is_some_and(|name| name.eq_ignore_ascii_case("cohere"));
    // Only Cohere has a second version, and a path that ends with its first version's `chat`.
    if cohere || path.starts_with("/v2/") || path == "/v1/chat" {
        return Some(WireFormat::CohereV2);
    }
    let is_google_verb = path.rsplit('/').next().is_some_and(|last| {
        last.split_once(':').is_some_and(|(_, verb)| verb.chars().all(char::is_alphabetic))
    });
    if header("x-goog-api-key").is_some()
        || query.split('&').any(|pair| pair.starts_with("key="))
        || path.starts_with("/v1beta/")
        || is_google_verb
    {
        return Some(WireFormat::Gemini);
    }
    if scheme.starts_with("AWS4-") {
        return Some(WireFormat::BedrockConverse);
    }
    if path.ends_with("/messages/count_tokens") || path.ends_with("/api/hello") {
        return Some(WireFormat::Anthropic);
    }
    if path.starts_with("/api/") {
        return Some(WireFormat::Ollama);
    }
    // OpenAI's clients send nothing but a bearer token; so do the clients of compatible servers.
    scheme.eq_ignore_ascii_case("bearer").then_some(WireFormat::OpenAiResponses)
}
