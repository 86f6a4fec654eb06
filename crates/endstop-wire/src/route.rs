//! Routes: the meaning of a method and a path of a provider's API, as a table.
//!
//! Clients put different prefixes before the same paths (`/v1`, `/openai/deployments/D`, nothing), so
//! a path is recognised by its end.
//!
//! A server may take several spellings for the same path: it decodes `%63`, merges slashes, or ignores
//! case. The fixed words of a row must be spelt as the row has them; another spelling of a row that costs
//! is recognised and marked as [`is_respelt`](Recognised::is_respelt). So is a path that begins with a call
//! whose cost is counted, such as `/v1/messagesX`, because a server may route by the beginning. The name of
//! a model may have any spelling.
//!
//! ```
//! use endstop_wire::route::{Call, recognise};
//! let plain = recognise("POST", "/v1/chat/completions?api-version=1");
//! assert!(matches!(plain.call, Call::Model { .. }) && !plain.is_respelt);
//! let other = recognise("POST", "/v1/chat/%63ompletions");
//! assert!(matches!(other.call, Call::Model { .. }) && other.is_respelt);
//! let arn = recognise("POST", "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Aprofile%2Fc/converse");
//! assert_eq!(arn.model.as_deref(), Some("arn:aws:bedrock:eu-west-1:1:profile/c"));
//! ```

use crate::dialect::WireFormat;
use percent_encoding::percent_decode_str;
use std::fmt;

/// The longest name of a model or id that is returned, in characters.
const LONGEST_NAME: usize = 256;
/// A path is decoded at most this often. Each layer before a server may decode once.
const MOST_DECODINGS: usize = 4;
/// The most segments at the end of a path that a row can match, including those within a name.
const MOST_SEGMENTS: usize = 24;

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

impl Delivery {
    /// The content type of such an answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Delivery::Whole | Delivery::Array => "application/json",
            Delivery::Events => "text/event-stream; charset=utf-8",
            Delivery::Lines => "application/x-ndjson",
            Delivery::Frames => "application/vnd.amazon.eventstream",
        }
    }
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
    /// A call that costs, but does not continue a conversation: embeddings, images, speech, rankings. Its response
    /// may report its usage.
    Metered(Metered),
    /// A call that costs, in a form that is not read: batches, legacy completions, interactions, realtime
    /// sessions.
    Unread,
    /// The state of a stored response: its result once it is complete, or its cancellation.
    Stored,
    /// A count of the tokens of a prompt; costs nothing.
    CountTokens,
    /// A list or a description of models.
    Models,
    /// Claude Code's test of the connection.
    Hello,
    /// A call that costs nothing by itself: telemetry, files, moderation.
    Free,
    /// Anything else.
    Other,
}

impl Call {
    /// `true` if a call of this kind may have a bill.
    pub fn costs(self) -> bool {
        match self {
            Call::Model { .. } | Call::Metered(_) | Call::Unread => true,
            Call::Stored
            | Call::CountTokens
            | Call::Models
            | Call::Hello
            | Call::Free
            | Call::Other => false,
        }
    }

    /// The format of a model call.
    pub fn format(self) -> Option<WireFormat> {
        match self {
            Call::Model { format, .. } => Some(format),
            Call::Metered(_)
            | Call::Unread
            | Call::Stored
            | Call::CountTokens
            | Call::Models
            | Call::Hello
            | Call::Free
            | Call::Other => None,
        }
    }
}

/// What a [metered](Call::Metered) call produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metered {
    /// Vectors or rankings: no output has a price, and the tokens are those of the body.
    Vectors,
    /// Images, speech, or text of speech: the size of the output does not follow from the request.
    Media,
}

/// A request line, understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Recognised {
    /// The kind of the call.
    pub call: Call,
    /// The model, if the path names it, decoded; at most 256 characters.
    pub model: Option<String>,
    /// The model that the path names before the words of the call, folded to lower case: a deployment of Azure, or a
    /// model of a server with a path for each. The body may name another one.
    pub deployment: Option<String>,
    /// The id of a [stored](Call::Stored) response.
    pub id: Option<String>,
    /// `true` if the path is spelt differently from the row that it matches, and that row costs, or if it begins like
    /// one whose cost is counted. The call is then not the one that it begins like.
    pub is_respelt: bool,
    /// The format of the model call below whose path a call that costs nothing is served, such as a count of tokens
    /// below `messages`: a server that routes by the beginning of a path answers it as that call.
    pub below: Option<WireFormat>,
}

impl fmt::Debug for Recognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recognised { call, model, deployment, id, is_respelt, below } = self;
        f.debug_struct("Recognised")
            .field("call", call)
            .field("model", model)
            .field("deployment", deployment)
            .field("has_id", &id.is_some())
            .field("is_respelt", is_respelt)
            .field("below", below)
            .finish()
    }
}

impl Recognised {
    fn other() -> Recognised {
        Recognised {
            call: Call::Other,
            model: None,
            deployment: None,
            id: None,
            is_respelt: false,
            below: None,
        }
    }

    /// The format of the response, if this is a model call.
    pub fn format(&self) -> Option<WireFormat> {
        self.call.format()
    }
}

const fn model(format: WireFormat) -> Call {
    Call::Model { format, delivery: None }
}

const fn delivered(format: WireFormat, delivery: Delivery) -> Call {
    Call::Model { format, delivery: Some(delivery) }
}

const VECTORS: Call = Call::Metered(Metered::Vectors);
const MEDIA: Call = Call::Metered(Metered::Media);

/// A row: the method, the end of the path, the kind. `*` is any segment, `{model}` and `{id}` are segments
/// whose value is returned; a model may contain encoded slashes. The first row that fits counts.
type Row = (&'static str, &'static str, Call);

/// The method of rows that fit every method.
const ANY: &str = "*";

const ROWS: &[Row] = &[
    // Claude Code asks with HEAD; any answer will do.
    (ANY, "api/hello", Call::Hello),
    // OpenAI.
    ("POST", "chat/completions", model(WireFormat::OpenAiChat)),
    ("POST", "responses", model(WireFormat::OpenAiResponses)),
    ("POST", COMPACTION, delivered(WireFormat::OpenAiResponses, Delivery::Whole)),
    ("POST", "responses/input_tokens", Call::CountTokens),
    ("POST", "responses/{id}/cancel", Call::Stored),
    ("GET", "responses/{id}", Call::Stored),
    ("POST", "completions", Call::Unread),
    ("POST", "embeddings", VECTORS),
    ("POST", "images/generations", MEDIA),
    ("POST", "images/edits", MEDIA),
    ("POST", "images/variations", MEDIA),
    ("POST", "audio/speech", MEDIA),
    ("POST", "audio/transcriptions", MEDIA),
    ("POST", "audio/translations", MEDIA),
    ("POST", "videos", Call::Unread),
    ("POST", "videos/*/remix", Call::Unread),
    ("POST", "batches", Call::Unread),
    ("POST", "fine_tuning/jobs", Call::Unread),
    ("POST", "threads/runs", Call::Unread),
    ("POST", "threads/*/runs", Call::Unread),
    ("POST", "threads/*/messages", Call::Unread),
    ("POST", "evals", Call::Unread),
    ("POST", "evals/*/runs", Call::Unread),
    ("POST", "realtime/sessions", Call::Unread),
    ("POST", "realtime/transcription_sessions", Call::Unread),
    ("POST", "realtime/client_secrets", Call::Unread),
    ("POST", "realtime/calls", Call::Unread),
    ("POST", "realtime", Call::Unread),
    ("POST", "moderations", Call::Free),
    ("POST", "files", Call::Free),
    ("POST", "uploads", Call::Free),
    ("POST", "uploads/*/parts", Call::Free),
    ("POST", "uploads/*/complete", Call::Free),
    // Anthropic.
    ("POST", "messages/count_tokens", Call::CountTokens),
    ("POST", "messages/batches", Call::Unread),
    ("POST", "messages", model(WireFormat::Anthropic)),
    ("POST", "v1/complete", Call::Unread),
    ("POST", "v1/sessions", Call::Unread),
    ("POST", "v1/sessions/*/events", Call::Unread),
    ("POST", "api/event_logging/batch", Call::Free),
    ("POST", "api/claude_code/metrics", Call::Free),
    // Google, and Claude on Vertex, whose path has the model.
    ("POST", "models/{model}:generateContent", delivered(WireFormat::Gemini, Delivery::Whole)),
    (
        "POST",
        "models/{model}:streamGenerateContent",
        delivered(WireFormat::Gemini, Delivery::Array),
    ),
    ("POST", "endpoints/{model}:generateContent", delivered(WireFormat::Gemini, Delivery::Whole)),
    (
        "POST",
        "endpoints/{model}:streamGenerateContent",
        delivered(WireFormat::Gemini, Delivery::Array),
    ),
    ("POST", "models/*:countTokens", Call::CountTokens),
    ("POST", "endpoints/*:countTokens", Call::CountTokens),
    ("POST", "models/{model}:embedContent", VECTORS),
    ("POST", "models/{model}:batchEmbedContents", VECTORS),
    ("POST", "models/*:asyncBatchEmbedContent", Call::Unread),
    ("POST", "models/*:batchGenerateContent", Call::Unread),
    ("POST", "models/*:generateAnswer", Call::Unread),
    ("POST", "models/*:predict", Call::Unread),
    ("POST", "models/*:predictLongRunning", Call::Unread),
    ("POST", "models/*:serverStreamingPredict", Call::Unread),
    ("POST", "endpoints/*:predict", Call::Unread),
    ("POST", "endpoints/*:serverStreamingPredict", Call::Unread),
    ("POST", "endpoints/*:rawPredict", Call::Unread),
    ("POST", "endpoints/*:streamRawPredict", Call::Unread),
    ("POST", "batchPredictionJobs", Call::Unread),
    ("POST", "publishers/anthropic/models/count-tokens:rawPredict", Call::CountTokens),
    (
        "POST",
        "publishers/anthropic/models/{model}:rawPredict",
        delivered(WireFormat::Anthropic, Delivery::Whole),
    ),
    (
        "POST",
        "publishers/anthropic/models/{model}:streamRawPredict",
        delivered(WireFormat::Anthropic, Delivery::Events),
    ),
    // Other publishers' models on Vertex have formats of their own.
    ("POST", "models/*:rawPredict", Call::Unread),
    ("POST", "models/*:streamRawPredict", Call::Unread),
    ("POST", "interactions", Call::Unread),
    ("POST", "upload/v1beta/files", Call::Free),
    // Amazon Bedrock.
    ("POST", "model/{model}/invoke", delivered(WireFormat::BedrockInvoke, Delivery::Whole)),
    (
        "POST",
        "model/{model}/invoke-with-response-stream",
        delivered(WireFormat::BedrockInvoke, Delivery::Frames),
    ),
    ("POST", "model/{model}/converse", delivered(WireFormat::BedrockConverse, Delivery::Whole)),
    (
        "POST",
        "model/{model}/converse-stream",
        delivered(WireFormat::BedrockConverse, Delivery::Frames),
    ),
    ("POST", "model/*/count-tokens", Call::CountTokens),
    ("POST", "model/*/invoke-with-bidirectional-stream", Call::Unread),
    ("POST", "async-invoke", Call::Unread),
    ("POST", "model-invocation-job", Call::Unread),
    ("POST", "agents/*/agentAliases/*/sessions/*/text", Call::Unread),
    ("POST", "agents/*", Call::Unread),
    ("POST", "flows/*/aliases/*", Call::Unread),
    ("POST", "retrieveAndGenerate", Call::Unread),
    ("POST", "retrieveAndGenerateStream", Call::Unread),
    // Ollama.
    ("POST", "api/chat", model(WireFormat::Ollama)),
    ("POST", "api/generate", Call::Unread),
    ("POST", "api/embed", VECTORS),
    ("POST", "api/embeddings", VECTORS),
    ("POST", "api/show", Call::Free),
    ("POST", "api/pull", Call::Free),
    ("GET", "api/tags", Call::Models),
    // Cohere.
    ("POST", "v2/chat", model(WireFormat::CohereV2)),
    ("POST", "v1/chat", model(WireFormat::CohereV1)),
    ("POST", "v1/generate", Call::Unread),
    ("POST", "v1/summarize", Call::Unread),
    ("POST", "v1/classify", Call::Unread),
    ("POST", "v1/embed", VECTORS),
    ("POST", "v2/embed", VECTORS),
    ("POST", "v1/embed-jobs", Call::Unread),
    ("POST", "rerank", VECTORS),
    // Servers of open models: text generation inference, llama.cpp, vLLM.
    ("POST", "generate", Call::Unread),
    ("POST", "generate_stream", Call::Unread),
    ("POST", "completion", Call::Unread),
    ("POST", "infill", Call::Unread),
    ("POST", "pooling", VECTORS),
    ("POST", "score", VECTORS),
    ("POST", "tokenize", Call::CountTokens),
    ("POST", "detokenize", Call::CountTokens),
    ("POST", "count-tokens", Call::CountTokens),
    // OpenTelemetry.
    ("POST", "v1/traces", Call::Free),
    ("POST", "v1/metrics", Call::Free),
    ("POST", "v1/logs", Call::Free),
    // OpenAI's Agents SDK sends its traces to the provider.
    ("POST", "v1/traces/ingest", Call::Free),
    // A gateway may serve the Model Context Protocol.
    ("POST", "mcp", Call::Free),
    // Some servers answer for a single model under the same path.
    ("GET", "models", Call::Models),
    ("GET", "models/*", Call::Models),
];

/// The end of the path of OpenAI's compaction of a history, which has the form of a model call.
pub const COMPACTION: &str = "responses/compact";

/// Recognises a request by its method and its target: a path that starts with `/`, and a query.
pub fn recognise(method: &str, target: &str) -> Recognised {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let raw: Vec<&str> = path.trim_end_matches('/').rsplit('/').take(MOST_SEGMENTS).collect();
    let plain = ROWS.iter().find_map(|row| {
        let is_method = row.0 == ANY || row.0 == method;
        Some((row, exact(row.1, &raw).filter(|_| is_method)?))
    });
    let whole = decoded(path);
    // A server may decode the path before it cuts the query off.
    let cut = whole.split(['?', '#']).next().unwrap_or_default();
    let meant = [fitting(method, &folded(cut)), fitting(method, &folded(&whole))];
    // A row that costs nothing may be spelt in any way: it is then an unknown call.
    let is_other = |row: &&Row| row.2.costs() && plain.as_ref().is_none_or(|p| p.0.1 != row.1);
    let respelt = meant.into_iter().flatten().find(is_other);
    let begins = || counted_beginning(method, path, plain.as_ref().map(|(row, _)| *row));
    match (respelt, &plain) {
        (Some(row), _) => {
            Recognised { call: sent_as(row.2, query), is_respelt: true, ..Recognised::other() }
        }
        (None, Some((row, _))) if begins() => {
            Recognised { call: row.2, is_respelt: true, ..Recognised::other() }
        }
        (None, Some((row, found))) => {
            let before = raw.get(row.1.split('/').count()..).unwrap_or_default();
            let deployment = deployment(before).filter(|_| row.2.costs());
            let begun = || begun(method, path, row.2)?.format();
            let below = if row.2.costs() { None } else { begun() };
            Recognised { call: sent_as(row.2, query), deployment, below, ..found.clone() }
        }
        (None, None) => Recognised { is_respelt: begins(), ..Recognised::other() },
    }
}

/// Segments before the name of a model, in paths that name one before the words of the call.
const BEFORE_MODELS: &[&str] = &["deployments", "engines", "models"];

/// Returns the model that these segments name. They are in reverse order.
fn deployment(before: &[&str]) -> Option<String> {
    let path: Vec<&str> = before.iter().rev().copied().collect();
    let mut words = folded(&decoded(&path.join("/"))).into_iter().rev().peekable();
    while let Some(word) = words.next() {
        if words.peek().is_some_and(|marker| BEFORE_MODELS.contains(&marker.as_str())) {
            return Some(word.chars().take(LONGEST_NAME).collect());
        }
    }
    None
}

/// Returns the first row that a server may take a folded path for.
fn fitting(method: &str, folded: &[String]) -> Option<&'static Row> {
    ROWS.iter().find(|row| may_be_method(row.0, method) && ends_with(folded, row, Fit::Whole))
}

/// `true` if a path begins with a counted call before the words of the row that it ends with: a server that routes by
/// the beginning of a path serves that call.
fn counted_beginning(method: &str, path: &str, plain: Option<&Row>) -> bool {
    // It is counted as a call with a conversation, wherever it is served.
    if matches!(plain, Some((_, _, Call::Model { .. }))) {
        return false;
    }
    let path = path.trim_end_matches('/');
    let raw: Vec<&str> = path.rsplit('/').take(MOST_SEGMENTS).collect();
    // The longest row, because the end of one may be another one: `messages/batches`.
    let own =
        ROWS.iter().filter(|row| may_be_method(row.0, method) && exact(row.1, &raw).is_some());
    let before = match own.map(|row| row.1.split('/').count()).max() {
        Some(words) => path.rsplitn(words + 1, '/').nth(words).unwrap_or_default(),
        None => path,
    };
    begun(method, before, plain.map_or(Call::Other, |row| row.2)).is_some()
}

/// Returns the counted call that a path, or the path of a folder above, begins like. `own` is the call that the whole
/// path is known as.
fn begun(method: &str, path: &str, own: Call) -> Option<Call> {
    let counts = |call: Call| match call {
        Call::Model { .. } => true,
        Call::Metered(_) => !matches!(own, Call::Metered(_)),
        Call::Unread
        | Call::Stored
        | Call::CountTokens
        | Call::Models
        | Call::Hello
        | Call::Free
        | Call::Other => false,
    };
    let decoded = decoded(path);
    // A server that decodes once sees dots of a later layer as a name.
    [folded(&decoded), folded(&decoded.replace("..", "-"))].into_iter().find_map(|segments| {
        let most = segments.len().min(MOST_SEGMENTS);
        (1..=most).find_map(|end| {
            let begin = &segments[..end];
            // The name of a model or deployment may have any beginning.
            let is_name = end > 1 && BEFORE_MODELS.contains(&begin[end - 2].as_str());
            // The first row that fits counts, as in the path of a call.
            let found = ROWS.iter().find(|row| {
                may_be_method(row.0, method)
                    && (!is_name || row.1.contains('/'))
                    && ends_with(begin, row, Fit::Beginning)
            });
            found.map(|row| row.2).filter(|call| counts(*call))
        })
    })
}

/// The part of a row's last word that has to fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The segment is the word.
    Whole,
    /// The segment begins with the word.
    Beginning,
}

/// `true` if a folded path ends with the words of a row.
fn ends_with(folded: &[String], row: &Row, fit: Fit) -> bool {
    let last: Vec<&str> = folded.iter().rev().take(MOST_SEGMENTS).map(String::as_str).collect();
    let words: Vec<&str> = row.1.rsplit('/').collect();
    fits_folded(&words, &last, fit)
}

/// `true` if a server may take this method for that of a row: some ignore case, or take PUT for POST.
fn may_be_method(of: &str, method: &str) -> bool {
    match of {
        ANY => true,
        "GET" => method == "GET",
        _ => !["GET", "HEAD", "OPTIONS", "TRACE", "DELETE"].contains(&method),
    }
}

/// Google's streams are an array unless events are asked for.
fn sent_as(call: Call, query: &str) -> Call {
    match call {
        Call::Model { format, delivery: Some(Delivery::Array) }
            if query.split('&').any(|pair| pair == "alt=sse") =>
        {
            delivered(format, Delivery::Events)
        }
        call => call,
    }
}

/// A word of a row: its beginning, and the verb after a colon.
fn parts(word: &str) -> (&str, Option<&str>) {
    word.split_once(':').map_or((word, None), |(head, verb)| (head, Some(verb)))
}

/// Compares the end of a path with a row, word for word, and returns the names in it. The segments are in
/// reverse order.
fn exact(row: &str, segments: &[&str]) -> Option<Recognised> {
    let mut found = Recognised::other();
    for (at, word) in row.rsplit('/').enumerate() {
        let (head, verb) = parts(word);
        let mut segment = *segments.get(at)?;
        if let Some(verb) = verb {
            // Clients may encode the colon.
            let before = segment.strip_suffix(verb)?;
            let colon =
                [":", "%3A", "%3a"].into_iter().find_map(|colon| before.strip_suffix(colon));
            segment = colon?;
        }
        match head {
            "{model}" => found.model = Some(name(segment, true)?),
            "{id}" => found.id = Some(name(segment, false)?),
            "*" => drop(name(segment, false)?),
            head if head == segment => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Returns the value of a segment that may have any spelling: one name, which leaves no folder. Only the name
/// of a model may contain slashes.
fn name(segment: &str, with_slashes: bool) -> Option<String> {
    let whole = decoded(segment);
    let mut words = whole.split(['/', '\\']);
    let is_name = whole.trim() != "" && !words.clone().any(|word| matches!(word, "." | ".."));
    if !is_name || (!with_slashes && words.nth(1).is_some()) {
        return None;
    }
    let once = percent_decode_str(segment).decode_utf8_lossy();
    Some(once.chars().take(LONGEST_NAME).collect())
}

/// Decodes a text as often as it has escapes.
fn decoded(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..MOST_DECODINGS {
        let next = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == text {
            break;
        }
        text = next;
    }
    text
}

/// Returns the segments of a decoded path as a server may read them: without empty segments, parameters,
/// white space and case.
fn folded(decoded: &str) -> Vec<String> {
    let mut segments: Vec<String> = Vec::new();
    for segment in decoded.split(['/', '\\']) {
        let word = segment.split([';', '?', '#']).next().unwrap_or_default();
        let word = word.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        match word {
            ".." => drop(segments.pop()),
            word if word.trim_end_matches('.').is_empty() => {}
            // Upper case first: it folds letters such as the long s.
            // Servers on Windows ignore dots at the end.
            word => segments.push(word.trim_end_matches('.').to_uppercase().to_lowercase()),
        }
    }
    segments
}

/// Compares the end of a folded path with the words of a row, both in reverse order. A name may be several
/// segments, because its slashes are decoded.
fn fits_folded(words: &[&str], segments: &[&str], fit: Fit) -> bool {
    let Some((word, words)) = words.split_first() else { return true };
    let Some((segment, rest)) = segments.split_first() else { return false };
    let (head, verb) = parts(word);
    let Some(value) = without_verb(segment, verb, fit) else { return false };
    if !matches!(head, "*" | "{model}" | "{id}") {
        let is_word = value.eq_ignore_ascii_case(head)
            || fit == Fit::Beginning && verb.is_none() && begins_with(value, head);
        return is_word && fits_folded(words, rest, Fit::Whole);
    }
    if value.is_empty() {
        return false;
    }
    // All rows have at most four names, and the number of segments is bounded.
    (0..=rest.len().min(MOST_OF_NAME)).any(|more| fits_folded(words, &rest[more..], Fit::Whole))
}

/// The most further segments of a name with slashes, such as that of an inference profile.
const MOST_OF_NAME: usize = 4;

fn without_verb<'a>(segment: &'a str, verb: Option<&str>, fit: Fit) -> Option<&'a str> {
    let Some(verb) = verb else { return Some(segment) };
    let mut verbs = segment.match_indices(':');
    let at = match fit {
        Fit::Whole => verbs.find(|(at, _)| segment[at + 1..].eq_ignore_ascii_case(verb)),
        Fit::Beginning => verbs.find(|(at, _)| begins_with(&segment[at + 1..], verb)),
    };
    at.map(|(at, _)| &segment[..at])
}

/// `true` if a text begins with this word in any case.
fn begins_with(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, target: &str) -> (Call, bool) {
        let found = recognise(method, target);
        (found.call, found.is_respelt)
    }

    /// A path of each row, with names in it.
    fn sample(row: &Row) -> String {
        let path = row.1.replace("{model}", "m.1").replace("{id}", "resp_1").replace('*', "x-1");
        format!("/{path}")
    }

    #[test]
    fn each_row_is_found_behind_each_prefix() {
        for row in ROWS {
            let method = if row.0 == ANY { "HEAD" } else { row.0 };
            for prefix in ["", "/v1", "/openai/deployments/My%20Model", "/a/b/c/d", "//x"] {
                for end in ["", "/", "?api-version=1"] {
                    let target = format!("{prefix}{}{end}", sample(row));
                    // `v1/chat` behind a prefix with a version is still that row.
                    assert_eq!(of(method, &target), (row.2, false), "{method} {target}");
                }
            }
        }
    }

    #[test]
    fn calls_below_a_model_call_are_marked() {
        let below = |method: &str, target: &str| recognise(method, target).below;
        for prefix in ["", "/v1", "/openai/deployments/d"] {
            for (path, format) in [
                ("/messages/count_tokens?beta=true", Some(WireFormat::Anthropic)),
                ("/responses/input_tokens", Some(WireFormat::OpenAiResponses)),
                ("/responses/resp_1/cancel", Some(WireFormat::OpenAiResponses)),
                ("/models/m:countTokens", None),
                ("/model/m/count-tokens", None),
                ("/files", None),
                ("/messages", None),
                ("/responses/compact", None),
            ] {
                let target = format!("{prefix}{path}");
                assert_eq!(below("POST", &target), format, "{target}");
            }
        }
        assert_eq!(below("GET", "/v1/responses/resp_1"), None);
    }

    /// Each other spelling of each row that costs is recognised, and marked.
    #[test]
    fn other_spellings_of_rows_that_cost_are_marked() {
        for row in ROWS.iter().filter(|row| row.2.costs()) {
            let path = sample(row);
            let last = path.rfind(|c: char| c.is_ascii_alphabetic()).unwrap();
            let letter = path.as_bytes()[last];
            let upper = path.to_uppercase();
            let mut spellings = vec![
                format!("{}%{letter:02x}{}", &path[..last], &path[last + 1..]),
                format!("{}%25{letter:02X}{}", &path[..last], &path[last + 1..]),
                format!("{path};v=1"),
                format!("{path}%20"),
                format!("{path}%09/"),
                format!("{path}%00"),
                format!("{path}."),
                format!("{path}.%20/"),
                format!("{path}%3Fx=1"),
                format!("/x/%2e%2e{}%2F.", path),
                upper,
            ];
            if row.1.contains('/') {
                let at = path.rfind('/').unwrap();
                for slash in ["//", "%2F", "%2f", "%5C", "/%2e/", "%252F", "/;a/"] {
                    spellings.push(format!("/v1{}{slash}{}", &path[..at], &path[at + 1..]));
                }
            }
            for target in spellings {
                let (call, is_respelt) = of("POST", &target);
                assert!(call.costs(), "{target}: {call:?}");
                // `//batches` is the plain end of another row of the same kind.
                assert!(is_respelt || call == row.2, "{target}: {call:?}");
            }
            for method in ["post", "PUT", "PATCH", "QUERY", "Post"] {
                let (call, is_respelt) = of(method, &path);
                assert!(call.costs() && is_respelt, "{method} {path}: {call:?}");
            }
        }
    }

    #[test]
    fn spellings_of_clients_are_plain() {
        for (target, model) in [
            ("/v1beta/models/gemini-3-pro:generateContent", Some("gemini-3-pro")),
            ("/v1beta/models/gemini-3-pro%3AgenerateContent", Some("gemini-3-pro")),
            (
                "/v1beta/tunedModels/x/models/Gemini%2D3:streamGenerateContent?alt=sse",
                Some("Gemini-3"),
            ),
            ("/v1/projects/P-1/locations/us-central1/endpoints/42:generateContent", Some("42")),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/claude%40x:streamRawPredict",
                Some("claude@x"),
            ),
            (
                "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.A.claude%3A0/converse",
                Some("arn:aws:bedrock:us-east-1:1:inference-profile/us.A.claude:0"),
            ),
            (
                "/model/anthropic.claude-3-5-sonnet-20241022-v2:0/invoke",
                Some("anthropic.claude-3-5-sonnet-20241022-v2:0"),
            ),
            (
                "/model/anthropic.claude-v2%3a1/invoke-with-response-stream",
                Some("anthropic.claude-v2:1"),
            ),
            ("/openai/deployments/GPT%204/chat/completions?api-version=2025-01-01", None),
            ("/OpenAI/Deployments/CHAT/chat/completions", None),
        ] {
            let found = recognise("POST", target);
            assert!(matches!(found.call, Call::Model { .. }), "{target}: {found:?}");
            assert!(!found.is_respelt, "{target}");
            assert_eq!(found.model.as_deref(), model, "{target}");
        }
    }

    #[test]
    fn deployments_are_named() {
        for (target, expected) in [
            ("/openai/deployments/o1-pro/chat/completions?api-version=1", Some("o1-pro")),
            ("/openai/deployments/My%20GPT/chat/completions", Some("my gpt")),
            ("/OpenAI/Deployments/O1-Pro/chat/completions", Some("o1-pro")),
            ("/openai/%64eployments/o1-pro/chat/completions", Some("o1-pro")),
            ("/openai/deployments%2Fo1-pro/chat/completions", Some("o1-pro")),
            ("/openai/deployments//o1-pro/extensions/chat/completions", Some("o1-pro")),
            ("/openai/deployments/d/embeddings", Some("d")),
            ("/v1/engines/davinci/chat/completions", Some("davinci")),
            ("/models/tiny/v1/chat/completions", Some("tiny")),
            ("/deployments/a/models/b/v1/messages", Some("b")),
            ("/models/chat/completions", None),
            ("/openai/v1/chat/completions", None),
            ("/v1/responses", None),
            ("/v1beta/models/m:generateContent", None),
            ("/openai/deployments/d/files", None),
        ] {
            let found = recognise("POST", target);
            assert_eq!(found.deployment.as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn what_costs_nothing_is_not_marked() {
        for (method, target, call) in [
            ("GET", "/v1/responses/resp_1?stream=true", Call::Stored),
            ("GET", "/v1/chat/%63ompletions", Call::Other),
            ("GET", "/v1/models/GPT%2D5", Call::Models),
            ("DELETE", "/v1/responses/resp_1", Call::Other),
            ("POST", "/acme/v1/files", Call::Free),
            ("POST", "/v1/Files", Call::Other),
            ("POST", "/v1/unknown", Call::Other),
            ("POST", "/", Call::Other),
            ("POST", "/invoke", Call::Other),
            ("POST", "/v1/files/a..b/.../x", Call::Other),
        ] {
            assert_eq!(of(method, target), (call, false), "{method} {target}");
        }
    }

    /// A row that costs nothing does not hide a model call before it, or behind a query in the path.
    #[test]
    fn free_rows_hide_no_model_call() {
        for call in ["/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses"] {
            for cut in ["%3F", "%23", "%3Fa", "%253F", "/", "%2F", "//x/"] {
                for free in ["/v1/traces", "/files", "/api/hello", "/api/show", "/v1/logs"] {
                    let target = format!("{call}{cut}{free}");
                    let (found, is_respelt) = of("POST", &target);
                    assert!(is_respelt, "{target}: {found:?}");
                }
            }
            for other in ["%3F/score", "%3F/embeddings", "%23/tokenize", "%3Fa/responses/r1/cancel"]
            {
                let (found, is_respelt) = of("POST", &format!("{call}{other}"));
                assert!(
                    matches!(found, Call::Model { .. }) && is_respelt,
                    "{call}{other}: {found:?}"
                );
            }
        }
        assert_eq!(of("POST", "/v1/responses/resp_1/cancel"), (Call::Stored, false));
        assert_eq!(of("POST", "/v1/messages/count_tokens"), (Call::CountTokens, false));
    }

    /// A server that routes by the beginning of a path serves a call that is counted.
    #[test]
    fn beginnings_of_counted_calls_are_marked() {
        for target in [
            "/v1/messagesX",
            "/v1/messages/x",
            "/v1/messages.json",
            "/v1/messages-x/y",
            "/v1/messages,x",
            "/v1/messages%00x",
            "/v1/messages%20x",
            "/v1/messages;a/x",
            "/v1//messages//x",
            "/v1/messages./x",
            "/v1/MESSAGESX",
            "/v1/%6dessagesX",
            "/v1%2FmessagesX",
            "/v1/%256dessages%2fx",
            "/v1/messages/%252e%252e/x",
            "/v1/x/%252e%252e/messagesX",
            "/messagesX",
            "/v1/chat/completionsX",
            "/v1/chat/completions/completions",
            "/v1/chat/completions/tokenize",
            "/v1/chat/completions/embeddings",
            "/v1/messages/responses/r1/cancel",
            "/v1/messages/x/files",
            "/v1/responsesX",
            "/v1/embeddingsX",
            "/v1/embeddings/files",
            "/v1/images/generations/x",
            "/v1beta/models/m:generateContentX",
            "/v1beta/models/m:generateContent:x",
            "/v1beta/models/m:embedContent/x",
            "/model/m/converseX",
            "/model/arn%3Aaws%2Fm/invoke/x",
            "/api/chatX",
        ] {
            for end in ["", "/", "?a=b", &"/x".repeat(30)] {
                let found = recognise("POST", &format!("{target}{end}"));
                assert!(found.is_respelt && found.format().is_none(), "{target}{end}: {found:?}");
            }
            assert!(!of("GET", target).1, "{target}");
        }
        // Rows of their own, and names that only sound like a call.
        for (target, call) in [
            ("/v1/messages/count_tokens", Call::CountTokens),
            ("/v1/messages/batches", Call::Unread),
            ("/v1/responses/input_tokens", Call::CountTokens),
            ("/v1/threads/t/messages", Call::Unread),
            ("/v1/threads/t/messages/m", Call::Other),
            ("/v1/embed-jobs", Call::Unread),
            ("/openai/deployments/embeddings-2/unknown", Call::Other),
            ("/openai/deployments/messages-bot/embeddings", VECTORS),
            ("/v1beta/models/embeddings-1:countTokens", Call::CountTokens),
            ("/embeddings/v1/rerank", VECTORS),
            ("/v1/message", Call::Other),
            ("/v1/xmessages", Call::Other),
        ] {
            assert_eq!(of("POST", target), (call, false), "{target}");
        }
    }

    /// A name between the words of a row leaves no folder, however it is encoded.
    #[test]
    fn names_leave_no_folder() {
        for name in ["..", "%2e%2e", "%252e%252e", "x%2F..%2F..", "%5c..", "", "%20", "a%2Fb"] {
            let target = format!("/v1/threads/{name}/messages");
            let (call, _) = of("POST", &target);
            assert!(call.costs(), "{target}: {call:?}");
        }
    }

    #[test]
    fn long_and_hostile_paths_end() {
        for target in [
            "/%2F".repeat(20_000),
            "/model".repeat(10_000) + "/converse",
            "/x/%".repeat(10_000),
            "/agents/x".repeat(5_000) + "/agentAliases/x/sessions/x/text",
            "%25".repeat(20_000),
        ] {
            let _ = recognise("POST", &target);
        }
        let long = recognise("POST", &format!("/model/{}/invoke", "m".repeat(5000)));
        assert_eq!(long.model.map(|model| model.len()), Some(256));
    }
}
