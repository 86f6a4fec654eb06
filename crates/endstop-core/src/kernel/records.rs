//! What a run has counted and recorded so far, one struct for each subject. The phases share them as
//! fields of the context.
//!
//! A counter that several places change is a field. The results of a turn's tool calls are counted
//! here.

use super::judge::SaidText;
use super::outcome::ending::Ending;
use super::outcome::{CompactionAttempt, VerifyRound};
use crate::error_class::{ErrorClass, ModelError};
use crate::message::{ToolCall, ToolResult, ToolStatus};
use crate::price::Price;
use crate::visible::{append_piece, is_blank, unclosed_reasoning, visible_text};
use std::collections::BTreeMap;
use std::time::Duration;

/// The counters of a run since its start. Those "in a row" return to zero.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) turns: u32,
    pub(super) tool_turns: u32,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Tool calls that were started, without `finish`.
    pub(super) started: u32,
    /// The same for each tool that has a limit of its own.
    pub(super) started_of: BTreeMap<String, u32>,
    /// The tool of the first call since the last turn began that was not started, because a limit on calls was reached.
    pub(super) over_calls: Option<String>,
    /// Turns in a row whose every tool call failed.
    pub(super) mistakes: u32,
    /// Blank answers in a row.
    pub(super) empty_turns: u32,
    /// Paused turns in a row.
    pub(super) pauses: u32,
    /// Turns in a row whose tool call was lost in transit.
    pub(super) lost_calls: u32,
    pub(super) continuations: u32,
    pub(super) repairs: u32,
    pub(super) vetoes: u32,
    /// `finish` was refused because another call of the same turn had failed; the next one is
    /// accepted.
    pub(super) finish_refused: bool,
    /// `finish` was refused because it had an answer and a reason why there is none; the answer of the
    /// next one counts.
    pub(super) contradiction_refused: bool,
}

impl Counts {
    /// Counts a turn with tools, and the results of its calls.
    pub(super) fn count_results(&mut self, calls: &[(&ToolCall, &ToolResult)]) {
        self.tool_turns += 1;
        // A call that was aborted or not started is neither a mistake nor a success, because the model did not cause it.
        let ran = |status| !matches!(status, ToolStatus::Aborted | ToolStatus::Skipped);
        let mut ended = calls.iter().filter(|(_, result)| ran(result.status));
        if let Some((_, first)) = ended.next() {
            let all_failed = first.status.is_error() && ended.all(|(_, r)| r.status.is_error());
            self.mistakes = if all_failed { self.mistakes + 1 } else { 0 };
        }
    }
}

/// The text of the model so far. Only what is visible of it counts, see [`visible_text`].
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The answer so far, if earlier turns were truncated and continued, or paused.
    partial: String,
    /// The last text of the run with a visible part, or else its first one. With its reasoning.
    last_text: Option<String>,
    /// The model that answered, as the provider names it.
    pub(super) model: Option<String>,
}

impl Said {
    /// The answer so far, with its reasoning.
    pub(super) fn partial(&self) -> &str {
        &self.partial
    }

    /// The visible part of the answer so far.
    pub(super) fn visible_partial(&self) -> &str {
        visible_text(&self.partial)
    }

    /// Begins a new answer: the one so far is complete, or void.
    pub(super) fn begin_answer(&mut self) {
        self.partial.clear();
    }

    /// Adds the text of a response to the answer so far.
    pub(super) fn add(&mut self, text: &str) -> Added {
        let blank = is_blank(&self.rest(text));
        let before = self.partial.len();
        append_piece(&mut self.partial, text);
        Added { blank, before, visible: self.visible_partial().to_owned() }
    }

    /// Settles the text that was added: it becomes the last text, unless it only reasons, and the next
    /// response continues the answer, unless this one calls tools.
    pub(super) fn settle(&mut self, text: &str, added: &Added, has_calls: bool) {
        // A turn that only reasons takes no text away.
        if !added.blank || self.last_text.is_none() && !is_blank(text) {
            let last = if has_calls { text } else { &self.partial };
            self.last_text = Some(last.to_owned());
        }
        if has_calls {
            self.begin_answer();
        } else if added.blank && unclosed_reasoning(&self.partial).is_none() {
            // The next piece continues what was said, not the blanks.
            self.partial.truncate(added.before);
        }
    }

    /// Stores the text of a call that did not end, as the last text of the run.
    pub(super) fn cut_off(&mut self, text: &str) {
        self.last_text = Some(self.with(text));
    }

    /// Takes the last text with its reasoning.
    pub(super) fn take_last_text(&mut self) -> Option<String> {
        self.last_text.take()
    }

    /// Returns the answer so far, with another piece.
    pub(super) fn with(&self, piece: &str) -> String {
        let mut answer = self.partial.clone();
        append_piece(&mut answer, piece);
        answer
    }

    /// Returns the visible part of the piece that continues the answer so far.
    pub(super) fn rest(&self, piece: &str) -> String {
        let (before, whole) = (self.visible_partial(), self.with(piece));
        let whole = visible_text(&whole);
        // Only later pieces show that the first one was reasoning.
        whole.strip_prefix(before).unwrap_or(whole).to_owned()
    }

    /// The visible text of the run that is the answer of a success without one of its own.
    pub(super) fn visible(&self) -> Option<&str> {
        self.last_text.as_deref().map(visible_text)
    }

    /// What policies and rules read at a step with this visible text.
    pub(super) fn at<'a>(&'a self, text: &'a str) -> SaidText<'a> {
        SaidText { text, last: self.last_text.as_deref() }
    }
}

/// The text of a response that was added to the answer so far.
#[derive(Debug)]
pub(super) struct Added {
    /// The visible answer with this text.
    pub(super) visible: String,
    /// `true` if this text adds nothing visible.
    pub(super) blank: bool,
    /// Length of the answer before, in bytes.
    before: usize,
}

/// The attempts at the current turn. Each turn starts with the default.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) attempt: u32,
    pub(super) retries: u32,
    /// Time of the first failure.
    pub(super) failed_since: Option<Duration>,
    /// Sum of the waits before retries.
    pub(super) waited: Duration,
    /// The next failure of the call is answered with one more attempt, because the run was resumed
    /// after that call had ended it.
    pub(super) call_again: bool,
    pub(super) starved_this_turn: bool,
    /// The warning that the request of the turn has, for a guest's other attempts.
    pub(super) warning: Option<String>,
    /// The turn has waited for a window of the subscription after a refusal.
    pub(super) paused_this_turn: bool,
    /// The failure of the last attempt, while the turn is attempted again. Boxed, because most turns have none.
    pub(super) failure: Option<Box<ModelError>>,
    /// A response of this turn was appended to the conversation.
    pub(super) recorded: bool,
}

/// The hand-over of a run.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// The request was made, or was not possible; it is tried once.
    pub(super) tried: bool,
    pub(super) text: Option<String>,
}

impl HandOver {
    /// Stores the text of the hand-over, unless it is blank.
    pub(super) fn take_text(&mut self, text: &str) {
        self.text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    }
}

/// The state that only a guest's run has.
#[derive(Debug, Default)]
pub(super) struct GuestState {
    /// The price of calls that have none of their own. Boxed, because other runs have none here.
    pub(super) price: Option<Box<Price>>,
    /// The calls had different prices.
    pub(super) prices_differ: bool,
    /// Number of messages before the response of the current turn.
    pub(super) before_response: usize,
    /// Complete responses in a row that were replaced by an equal request.
    pub(super) retakes: u32,
    /// Turns of other conversations that were in flight at the last call.
    pub(super) turns_in_flight: u32,
    /// The failed calls since the last response.
    pub(super) failed: FailedCalls,
    /// The last responses in a row that a model or a filter refused.
    pub(super) refusals: u32,
}

/// Number of retries of a turn after a response whose connection was lost, without `max_retries`: each of them may be
/// billed.
pub(super) const MOST_LOST: u32 = 5;

/// Number of failed calls of a guest in a row after which the run ends.
const MOST_FAILED: u32 = 20;

/// The same for calls that the provider refuses because of the key, the bill or the quota. One repetition is left, for
/// a client that renews its login.
const MOST_REFUSED: u32 = 2;

/// Number of refused responses of a guest in a row after which the run ends: the same wording is refused again.
pub(super) const MOST_REFUSALS: u32 = 2;

/// Time during which a guest's calls may fail. A provider that names its wait may extend it.
const LONGEST_FAILED: Duration = Duration::from_secs(600);

/// A failed call after this time does not repeat the one before: a person came back.
const LONGEST_GAP: Duration = Duration::from_secs(120);

/// The failed calls of a guest since its last response. Its client repeats them by itself, and they may be no turns, so
/// that no other limit would stop one that repeats them for ever.
#[derive(Debug, Default)]
pub(super) struct FailedCalls {
    pub(super) all: u32,
    /// Those at the end that have the same maximum, and of refused ones the same request.
    alike: u32,
    most: u32,
    request: Asked,
    first: Duration,
    last: Duration,
}

/// A request, as far as a repetition is the same one: its model, and the size of its prompt. A client may have a list of
/// models, each with a key of its own, or several requests in flight while its login expires.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) model: Option<String>,
    pub(super) bytes: Option<u64>,
}

impl FailedCalls {
    /// Counts a call. Returns `true` if it was the last one that the client may make.
    pub(super) fn add(&mut self, error: &ModelError, request: Asked, now: Duration) -> bool {
        let most = match error.class {
            ErrorClass::Authentication | ErrorClass::Permission | ErrorClass::QuotaExhausted => {
                MOST_REFUSED
            }
            ErrorClass::IncompleteStream => MOST_LOST + 1,
            ErrorClass::NotFound
            | ErrorClass::InvalidRequest
            | ErrorClass::ContextLengthExceeded
            | ErrorClass::RequestTooLarge
            | ErrorClass::ContentPolicy
            | ErrorClass::RateLimit
            | ErrorClass::Overloaded
            | ErrorClass::ServerError
            | ErrorClass::Timeout
            | ErrorClass::Cancelled
            | ErrorClass::UnknownError => MOST_FAILED,
        };
        let is_alike = self.most == most && (most != MOST_REFUSED || self.request == request);
        self.alike = if is_alike { self.alike + 1 } else { 1 };
        (self.most, self.request) = (most, request);
        if self.all == 0 || now.saturating_sub(self.last) > LONGEST_GAP {
            self.first = now;
        }
        self.last = now;
        self.all += 1;
        let too_long =
            error.retry_after_ms.is_none() && now.saturating_sub(self.first) >= LONGEST_FAILED;
        self.alike >= most || self.all >= MOST_FAILED || too_long
    }
}

/// The verdicts of a run so far.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub(super) rounds: Vec<VerifyRound>,
    /// The last answer that was rejected.
    pub(super) rejected: Option<Box<Ending>>,
}

impl Verdicts {
    /// Returns the verdict of the last round, if there was one.
    pub(super) fn last(&self) -> Option<bool> {
        self.rounds.last().map(|round| round.passed)
    }

    /// Returns the number of rounds.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }
}

/// The compaction history of a run.
#[derive(Debug, Default)]
pub(super) struct Compactions {
    pub(super) tried: Vec<CompactionAttempt>,
    pub(super) failed_in_a_row: u32,
    pub(super) forced_this_turn: bool,
}

impl Compactions {
    pub(super) fn any(&self) -> bool {
        !self.tried.is_empty()
    }

    /// Describes the attempts: how many, and the results of the last few.
    pub(super) fn told(&self) -> String {
        // Long runs compact often; the last few attempts explain an ending.
        const SHOWN: usize = 4;
        let of = |attempt: &CompactionAttempt| match (&attempt.failed, attempt.after) {
            (Some(why), _) => format!("failed: {why}"),
            (None, Some(after)) => format!("{} to {} bytes", attempt.before.bytes, after.bytes),
            (None, None) => "failed".to_owned(),
        };
        let hidden = self.tried.len().saturating_sub(SHOWN);
        let mut gave: Vec<String> = self.tried[hidden..].iter().map(of).collect();
        if hidden > 0 {
            gave.insert(0, "…".to_owned());
        }
        match self.tried.len() {
            1 => format!("1 compaction was tried: {}", gave.join("; ")),
            n => format!("{n} compactions were tried: {}", gave.join("; ")),
        }
    }
}

/// Maximum wait that a provider may request. A longer request ends the run instead, with
/// `retry_after` in its outcome.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
const BASE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// Returns a wait between zero and `500 ms × 2^(attempt - 1)`, at most 30 s. Whole
    /// milliseconds, because events report milliseconds and a replay must wait equally long. Full
    /// jitter, because clients that failed together must not return together.
    pub(crate) fn backoff(&mut self, attempt: u32) -> Duration {
        // The shift is bounded because it would overflow; the cap is reached at the seventh attempt
        // anyway.
        let ceiling = BASE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST);
        // The 53 high bits fill an `f64` mantissa exactly, so the fraction is uniform in [0, 1).
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        Duration::from_millis((ceiling.as_millis() as f64 * fraction) as u64)
    }

    /// The SplitMix64 generator (Steele, Lea and Flood, 2014). Chosen because one `u64` is its
    /// whole state, which a journal stores as the seed.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
