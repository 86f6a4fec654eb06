//! The provider to which a call belongs that is not a model call, for example a list of models.
//!
//! Such a call carries the key of its provider, so it must not go to another one's address.

use endstop_wire::WireFormat;

/// Returns the format whose provider a request is meant for, by its path, its query and its headers.
/// `None` if nothing in it tells.
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
