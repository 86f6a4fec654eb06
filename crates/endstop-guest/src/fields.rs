//! The fields of the values that a program reads, in one list for each class.
//!
//! A list is a macro that passes its rows to a macro of a binding, which makes getters of Python or an
//! object of JavaScript from them. The stub file and the TypeScript declarations are generated from the
//! same rows, so a new field is one new row. A row has the form `/// doc` `(kind) name = value;`:
//!
//! ```
//! use endstop_core::{TerminationSignal, Usage};
//! macro_rules! names {
//!     ($usage:ident; $($(#[doc = $doc:tt])* ($($kind:tt)+) $name:ident = $value:expr;)*) => {
//!         [$(stringify!($name)),*]
//!     };
//! }
//! assert!(endstop_guest::usage_fields!(names).contains(&"input_tokens"));
//! ```
//!
//! The kinds name the types of both languages:
//!
//! | kind | Rust | Python | JavaScript |
//! |---|---|---|---|
//! | `flag`, `text` | `bool`, `&str` or `String` | `bool`, `str` | `boolean`, `string` |
//! | `small`, `count`, `tokens` | `u16`, `u32`, `u64` | `int` | `number` |
//! | `usd` | `NanoUsd` | `float` | `number` |
//! | `time name_ms` | `Duration` | `float` of seconds | `number` of milliseconds, with this name |
//! | `one X`, `many X` | an enumeration, a slice of it | its member, a list | its name, an array |
//! | `object X` | a reference to the kernel's value | the class `X` | the interface `X` |
//! | `calls`, `shared calls` | `Vec<ToolCall>`, `&[Arc<ToolCall>]` | a list, a tuple | an array |
//! | `dict`, `value` | a map, a JSON value | `dict`, `Any` | an object, `any` |
//! | `only "T"` | a value with a JSON form | `T` | no field, because it is in `toJSON()` |
//!
//! `maybe` before a kind is an `Option`: `None` in Python and `null` in JavaScript.

/// The rows of an outcome.
#[macro_export]
macro_rules! outcome_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* outcome;
            /// The termination.
            (one Termination) termination = outcome.termination;
            /// The category, which determines what to do next.
            (one Category) category = outcome.category();
            /// True if the run succeeded.
            (flag) is_success = outcome.is_success();
            /// The reason for the ending, for a person to read.
            (text) evidence = outcome.decided_by.evidence.as_str();
            /// The check that ended the run: `layer`, `name` and `evidence`.
            (object DecidedBy) decided_by = &outcome.decided_by;
            /// Other terminations that also applied.
            (many Termination) also = outcome.also.as_slice();
            /// The answer of a success: what was declared, else the visible part of the last text. Missing if the
            /// run is not a success; the last text may then be partial.
            (maybe text) answer = outcome.answer();
            /// The last visible text that is not blank; partial if the response was cut.
            (maybe text) last_text = outcome.last_text.as_deref();
            /// The declared answer of a submitted run.
            (only "Any") deliverable = outcome.deliverable.as_ref();
            /// Number of responses that became part of the conversation.
            (count) turns = outcome.turns;
            /// Number of attempts at model calls.
            (count) model_calls = outcome.model_calls;
            /// Number of tool calls that were answered.
            (count) tool_calls = outcome.tool_calls;
            /// Token usage of all attempts.
            (object Usage) usage = &outcome.usage;
            /// Known cost in US dollars; missing if no part of it is known.
            (maybe usd) cost_usd = outcome.known_cost();
            /// Upper bound on the cost in US dollars, if one is known.
            (maybe usd) cost_upper_usd = outcome.cost_upper;
            /// True if part of the cost is unknown. The known cost is then a lower bound.
            (flag) cost_unknown = outcome.cost_unknown;
            /// Seconds from start to end; milliseconds in JavaScript.
            (time duration_ms) duration = outcome.duration;
            /// Wait time that the provider asked for, if that is why the run ended: in seconds, and in
            /// milliseconds in JavaScript.
            (maybe time retry_after_ms) retry_after = outcome.retry_after;
            /// Details of a failure, for example the trace of a policy that failed.
            (maybe text) error_diagnostic = outcome.error_diagnostic.as_deref();
            /// The proof of a run that made no progress: its repeated calls and results.
            (only "dict[str, Any] | None") no_progress = outcome.no_progress_snapshot.as_ref();
            /// The conversation, valid for providers, in the kernel's JSON form.
            (only "list[dict[str, Any]]") messages = outcome.messages.as_slice();
            /// Exit status for a process whose run ended so: 0 success, 10 retryable, 20 capacity, 30
            /// fatal, 130 cancelled, 143 terminated.
            (small) exit_status = u16::from(outcome.exit_status());
        }
    };
}

/// The rows of a token usage.
#[macro_export]
macro_rules! usage_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* usage;
            /// Prompt tokens, as the provider counts them.
            (maybe tokens) input_tokens = usage.input_tokens;
            /// Generated tokens, as the provider counts them.
            (maybe tokens) output_tokens = usage.output_tokens;
            /// Prompt tokens read from a cache.
            (maybe tokens) cached_input_tokens = usage.cached_input_tokens;
            /// Prompt tokens written to a cache.
            (maybe tokens) cache_write_tokens = usage.cache_write_tokens;
            /// Generated tokens spent on reasoning.
            (maybe tokens) reasoning_tokens = usage.reasoning_tokens;
            /// Prompt and generated tokens together, including cached ones.
            (tokens) total_tokens = usage.total_tokens();
            /// True if Endstop estimated the numbers, because the provider did not count.
            (flag) estimated = usage.estimated;
        }
    };
}

/// The rows of a signal.
#[macro_export]
macro_rules! signal_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* signal;
            /// The reason, a `SignalReason`.
            (one SignalReason) reason = signal.reason;
            /// True if the turn ends the model's part: it asks for no tool and is not paused.
            (flag) should_terminate = signal.should_terminate;
            /// The confidence that the reason was read correctly, a `Confidence`.
            (one Confidence) confidence = signal.confidence;
            /// Name of the field that the reason was read from, for example `finish_reason`.
            (text) original_field = &*signal.provider_specific.original_field;
            /// Raw value of that field; empty if it was missing.
            (text) original_value = signal.provider_specific.original_value.as_str();
            /// Other data of the provider about the end of the turn.
            (dict) metadata = &signal.provider_specific.metadata;
            /// An explanation for a person, if there is one.
            (maybe text) message = signal.message.as_deref();
        }
    };
}

/// The rows of the error of a model call.
#[macro_export]
macro_rules! model_error_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* error;
            /// Class of the error, an `ErrorClass`.
            (one ErrorClass) kind = error.class;
            /// The category, which determines what to do next.
            (one Category) category = error.class.category();
            /// HTTP status, if there was a response.
            (maybe small) status = error.status;
            /// The provider's message, or Endstop's own. Contains no credential.
            (text) message = error.message.as_str();
            /// Wait time that the provider asks for: in seconds, and in milliseconds in JavaScript.
            (maybe time retry_after_ms) retry_after =
                error.retry_after_ms.map(::std::time::Duration::from_millis);
        }
    };
}

/// The rows of a verdict.
#[macro_export]
macro_rules! verdict_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* verdict;
            /// True if the run stops.
            (flag) stops = verdict.stop().is_some();
            /// The termination of the run, if it stops.
            (maybe one Termination) ends_as =
                verdict.stop().map(|stop| ::endstop_core::Termination::from(stop.ends_as));
            /// The answer as text, if the verdict has one.
            (maybe text) answer = verdict.stop().and_then(|stop| stop.answer.as_deref());
            /// The answer as a value of JSON, if the verdict has one.
            (maybe value) deliverable = verdict.stop().and_then(::endstop_core::Stop::deliverable);
            /// Name of the policy that decided.
            (maybe text) policy = verdict.stop().map(|stop| stop.policy.as_str());
            /// The reason, for a person to read; empty if the run continues.
            (text) evidence = verdict.stop().map_or("", |stop| stop.evidence.as_str());
            /// The message for the model, if the policy has one.
            (maybe text) message = verdict.message();
        }
    };
}

/// The rows of a price.
#[macro_export]
macro_rules! price_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* quote;
            /// Dollars per million prompt tokens.
            (usd) input = quote.price.input;
            /// Dollars per million generated tokens.
            (usd) output = quote.price.output;
            /// Dollars per million prompt tokens read from a cache, if that is not the price of `input`.
            (maybe usd) cached_input = quote.price.cached_input;
            /// Dollars per million prompt tokens written to a cache, if that is not the price of `input`.
            (maybe usd) cache_write = quote.price.cache_write;
            /// True if every call has this price; false if it is the highest of several.
            (flag) exact = quote.is_exact();
            /// Tokens of prompt and answer together, if the catalogue knows them.
            (maybe tokens) context_window = quote.context_window();
            /// Source of the price: the caller, or the entry of the catalogue.
            (text) source = quote.source();
        }
    };
}

/// The rows of a detection.
#[macro_export]
macro_rules! detection_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* found;
            /// The wire format, for example `openai-chat`; empty if the response was described by hand.
            (text) api = found.api;
            /// The reason why the model stopped, with the provider's own value.
            (object Signal) signal = &found.decoded.signal;
            /// The reason alone, a `SignalReason`.
            (one SignalReason) reason = found.decoded.signal.reason;
            /// True if the turn ends the model's part: it asks for no tool and is not paused.
            (flag) should_terminate = found.decoded.signal.should_terminate;
            /// The visible text.
            (text) text = found.text();
            /// The reasoning in plain text.
            (text) reasoning = found.reasoning();
            /// The text with which the model refused, if the provider marks it.
            (maybe text) refusal = found.refusal();
            /// The tool calls that may run. A call that the token limit or a lost connection cut, or whose
            /// arguments are not a JSON object, is never among them.
            (calls) calls = found.split_calls().0;
            /// The tool calls that must not run, because they are cut or invalid.
            (calls) cut_calls = found.split_calls().1;
            /// Token usage.
            (object Usage) usage = &found.usage();
            /// The model that answered, as the provider names it.
            (maybe text) model = found.model();
            /// The error that the response is, or that ended it.
            (maybe object ModelError) error = found.decoded.error.as_ref();
            /// True if a finish value or the protocol's end marker arrived.
            (flag) complete = found.decoded.complete;
            /// True if the response was a stream of events.
            (flag) streamed = found.decoded.streamed;
        }
    };
}

/// The rows of a turn.
#[macro_export]
macro_rules! turn_fields {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)* turn;
            /// The visible text.
            (text) text = turn.text.as_str();
            /// The calls that may run, and no others of the response: a cut call is never among them.
            /// Empty if the run has ended.
            (shared calls) calls = turn.calls.as_slice();
            /// The calls of the response that must not run: it was cut, or their arguments are not a JSON
            /// object, or the run has ended. The kernel has answered them.
            (shared calls) held_back = turn.held_back.as_slice();
            /// The reason why the model stopped.
            (object Signal) signal = &turn.signal;
            /// Token usage of the response.
            (object Usage) usage = &turn.usage;
            /// The error that the response is, or that ended it.
            (maybe object ModelError) error = turn.error.as_ref();
            /// The ending that the run has if its loop ends now; there is none while the model waits for its
            /// tools. An ending that is not a success, such as `error_output_truncated`, means that the
            /// response is not an answer; the loop may still continue from it.
            (maybe one Termination) ending = turn.ending_or_end();
            /// True if the run has ended: call neither the model nor a tool.
            (flag) stopped = turn.outcome.is_some();
            /// The outcome, if the run has ended.
            (maybe object Outcome) outcome = turn.outcome.as_ref();
        }
    };
}

/// The names and the kinds of the rows of a class.
pub type Rows = Vec<(&'static str, &'static str)>;

/// Returns the rows of all classes by their names, from which the stub file of Python is generated.
pub fn classes() -> Vec<(&'static str, Rows)> {
    macro_rules! rows {
        ($class:literal $value:ident; $($(#[doc = $doc:tt])* ($($kind:tt)+) $name:ident = $get:expr;)*) => {
            ($class, vec![$((stringify!($name), stringify!($($kind)+))),*])
        };
    }
    vec![
        outcome_fields!(rows "Outcome"),
        usage_fields!(rows "Usage"),
        signal_fields!(rows "Signal"),
        model_error_fields!(rows "ModelError"),
        verdict_fields!(rows "Verdict"),
        price_fields!(rows "Price"),
        detection_fields!(rows "Detection"),
        turn_fields!(rows "Turn"),
    ]
}
