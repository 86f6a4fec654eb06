//! The limits of a run: turns, cost, tokens and time, and their configuration by name and value.
//!
//! All limits are rows of one table, in this file. The fields of [`Limits`] and their defaults, the
//! names in configuration, the flags of `endstop run`, the rules for settings files without
//! consent, the limits that a backtest switches off, and the table in `docs/src/limits.md` come
//! from the rows. A new limit is a row, and the code that enforces it.
//!
//! ```
//! use endstop_core::Limits;
//! use serde_json::json;
//! let mut limits = Limits::default();
//! limits.set("max_turns", &json!(40)).unwrap();
//! limits.set("timeout", &json!("10m")).unwrap();
//! assert_eq!(limits.max_turns, Some(40));
//! let error = limits.set("max_turn", &json!(3)).unwrap_err().to_string();
//! assert!(error.contains("max_turn") && error.contains("max_turns"));
//! ```

mod duration;
mod rates;
mod tokens_counted;
mod value;
mod window;
mod window_shares;

pub use duration::parse_duration;
pub use rates::Rates;
pub(crate) use rates::{Per, Quantity, amount};
pub use tokens_counted::TokensCounted;
pub use value::LimitValue;
pub use window::Window;
pub(crate) use window::percent;
pub use window_shares::WindowShares;

pub use crate::nearest::did_you_mean;
use crate::run_data::RunData;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;
use value::Field;

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Turns.
    Turns,
    /// US dollars.
    Usd,
    /// Tokens.
    Tokens,
    /// A duration.
    Time,
    /// A count of something else, such as retries or calls.
    Count,
    /// `true` or `false`.
    Switch,
    /// The tokens that count: `all`, `uncached` or `output`.
    TokensCounted,
    /// Windows of a subscription, each with its share.
    Windows,
    /// Dollars or tokens per minute or hour.
    Rates,
}

impl Unit {
    /// The unit in which a display counts what is used of a limit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Turns => "turns",
            Unit::Usd => "usd",
            Unit::Tokens => "tokens",
            Unit::Time => "seconds",
            Unit::Windows => "percent",
            Unit::Count | Unit::Switch | Unit::TokensCounted | Unit::Rates => "times",
        }
    }
}

/// The effect of `null` and `"off"` as the value of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// The limit no longer applies; for a plain number or a switch, the same as 0 or `false`.
    Allowed,
    /// An error with this advice.
    Refused(&'static str),
}

/// The data that a replay of a recorded run needs to apply a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// This data; with an empty list the limit applies to every recorded run.
    Data(&'static [RunData]),
    /// A provider that fails or tools that run, so that the limit applies to live runs only. "No
    /// limits" leaves it at its default.
    LiveRun,
}

/// The values of a limit that are tighter than another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tighter {
    /// A lower number, a shorter time or `false`; off is the loosest.
    Lower,
    /// The same, but both values must be set, because off selects another rule instead of no limit.
    LowerIfSet,
}

/// The guest runs in which a limit has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InGuest {
    /// All of them.
    Always,
    /// Those that can add a message ([`GuestMode::inject`](crate::GuestMode::inject)).
    Injecting,
    /// Those that can add a line to a request ([`GuestMode::warns`](crate::GuestMode::warns)).
    Warning,
    /// Those that can make a model call ([`GuestMode::retry`](crate::GuestMode::retry)).
    Retrying,
    /// Those that enforce the timeouts of calls and tools ([`GuestMode::clocks`](crate::GuestMode::clocks)).
    Timing,
    /// Those that can hold a call back ([`GuestMode::waits`](crate::GuestMode::waits)).
    Waiting,
    /// None, because only a driver that owns the loop can perform what the limit asks for.
    Never,
}

/// A row of the table of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitRow {
    /// The limit.
    pub limit: Limit,
    /// The name in configuration.
    pub name: &'static str,
    /// Description, as lines of documentation; the first paragraph is the help text of the flag.
    pub doc: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// The effect of `off`.
    pub off: Off,
    /// Minimum value of a count.
    pub least: u64,
    /// `true` if the limit is checked before each turn ([`PRE_TURN`](crate::PRE_TURN)).
    pub before_turn: bool,
    /// The data that a replay of a recorded run needs.
    pub needs: Needs,
    /// The values that a settings file may set without consent.
    pub tighter: Tighter,
    /// The guest runs in which the limit has an effect.
    pub in_guest: InGuest,
    /// The effect of reaching the limit, in Markdown.
    pub reached: &'static str,
    /// The effect of the default in words, if its value does not describe it.
    pub default_note: &'static str,
    get: fn(&Limits) -> LimitValue,
    set: fn(&LimitRow, &mut Limits, &Value, bool) -> Result<(), String>,
}

impl LimitRow {
    /// Returns the row of the limit with this name.
    pub fn of(name: &str) -> Option<&'static LimitRow> {
        TABLE.iter().find(|row| row.name == name)
    }

    /// Returns the value of this limit.
    pub fn value(&self, limits: &Limits) -> LimitValue {
        (self.get)(limits)
    }

    /// Returns the paragraphs of the description, each as one line.
    pub fn paragraphs(&self) -> impl Iterator<Item = String> {
        let paragraphs = self.doc.split("\n\n");
        paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// `true` if `theirs` may permit more than `own` does.
    pub fn is_looser(&self, own: &Limits, theirs: &Limits) -> bool {
        let (own, theirs) = (self.value(own), self.value(theirs));
        let known = match self.tighter {
            Tighter::Lower => true,
            Tighter::LowerIfSet => ![own, theirs].contains(&LimitValue::Off),
        };
        // Not `theirs > own`, because a value that cannot be compared may permit more.
        own != theirs && !(known && theirs <= own)
    }

    fn read<T: Field>(&self, value: &Value, in_ms: bool) -> Result<T, String> {
        if value.is_null() || value.as_str() == Some("off") {
            return match self.off {
                Off::Allowed => Ok(T::OFF),
                Off::Refused(advice) => Err(format!("cannot be off; {advice}")),
            };
        }
        let read = T::read(value, in_ms)?;
        match (read.value(), self.off) {
            (LimitValue::Count(count), Off::Allowed) if count < self.least => {
                Err(format!("expected at least {}; null or \"off\" disables it", self.least))
            }
            (LimitValue::Count(count), Off::Refused(_)) if count < self.least => {
                Err(format!("expected at least {}", self.least))
            }
            _ => Ok(read),
        }
    }
}

/// Generates [`Limits`], its defaults, [`Limit`] and [`TABLE`] from the rows.
macro_rules! limits {
    ($(
        $(#[doc = $doc:literal])+
        $limit:ident $name:ident: $type:ty = $default:expr, {
            unit: $unit:ident,
            off: $off:expr,
            needs: $needs:expr,
            tighter: $tighter:ident,
            reached: $reached:literal,
            $($key:ident: $value:expr,)*
        }
    )+) => {
        /// The limits of a run. `None` disables a limit.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Limits {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                pub $name: $type,
            )+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default),+ }
            }
        }

        /// One of the limits. Its name in JSON is the one in configuration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Limit {
            $(
                #[doc = concat!("The limit `", stringify!($name), "`.")]
                $limit,
            )+
        }

        /// The number of limits.
        const COUNT: usize = [$(stringify!($name)),+].len();

        impl Limits {
            /// The names of all limits as configuration spells them. A duration also accepts its
            /// name with the suffix `_ms` (`timeout_ms`), which takes milliseconds.
            pub const NAMES: [&'static str; COUNT] = [$(stringify!($name)),+];
        }

        /// All limits, in the order in which they are shown.
        pub const TABLE: [LimitRow; COUNT] = [$(LimitRow {
            unit: Unit::$unit,
            off: $off,
            needs: $needs,
            tighter: Tighter::$tighter,
            reached: $reached,
            $($key: $value,)*
            ..row(
                Limit::$limit,
                stringify!($name),
                concat!($($doc, "\n"),+),
                |limits| limits.$name.value(),
                |row, limits, value, in_ms| {
                    limits.$name = row.read(value, in_ms)?;
                    Ok(())
                },
            )
        }),+];
    };
}

/// Returns a row with the values that most rows share.
const fn row(
    limit: Limit,
    name: &'static str,
    doc: &'static str,
    get: fn(&Limits) -> LimitValue,
    set: fn(&LimitRow, &mut Limits, &Value, bool) -> Result<(), String>,
) -> LimitRow {
    LimitRow {
        limit,
        name,
        doc,
        unit: Unit::Count,
        off: Off::Allowed,
        least: 0,
        before_turn: false,
        needs: Needs::LiveRun,
        tighter: Tighter::Lower,
        in_guest: InGuest::Always,
        reached: "",
        default_note: "",
        get,
        set,
    }
}

impl Limit {
    /// Returns the limit with this name in configuration.
    pub fn of(name: &str) -> Option<Limit> {
        LimitRow::of(name).map(|row| row.limit)
    }

    /// Returns the row of the limit in the table.
    pub fn row(self) -> &'static LimitRow {
        // The variants and the rows come from the same list.
        &TABLE[self as usize]
    }

    /// The name in configuration, which is also the name in JSON.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

limits! {
    /// Maximum number of model responses.
    ///
    /// A response counts once it is appended to the conversation; 0 allows no call.
    MaxTurns max_turns: Option<u32> = Some(25), {
        unit: Turns,
        off: Off::Allowed,
        needs: Needs::Data(&[]),
        tighter: Lower,
        reached: "`error_max_turns`",
        before_turn: true,
    }
    /// Maximum number of tool calls that run.
    ///
    /// A call that would exceed it is not started, and the run ends once those before it have ended. `finish` and
    /// calls that are refused or denied do not count; 0 allows none.
    MaxToolCalls max_tool_calls: Option<u32> = None, {
        unit: Count,
        off: Off::Allowed,
        needs: Needs::Data(&[]),
        tighter: Lower,
        reached: "`error_max_tool_calls`",
        before_turn: true,
    }
    /// Cost ceiling in US dollars.
    ///
    /// Covers all attempts; 0 allows no call.
    MaxBudgetUsd max_budget_usd: Option<f64> = None, {
        unit: Usd,
        off: Off::Allowed,
        needs: Needs::Data(&[RunData::Cost]),
        tighter: Lower,
        reached: "`error_max_budget_usd`",
        before_turn: true,
    }
    /// Token ceiling, prompt and generated tokens together.
    ///
    /// Covers all attempts. `max_tokens_counts` selects the tokens that count.
    MaxTokens max_tokens: Option<u64> = None, {
        unit: Tokens,
        off: Off::Allowed,
        needs: Needs::Data(&[RunData::Tokens]),
        tighter: Lower,
        reached: "`error_max_tokens`",
        before_turn: true,
    }
    /// The tokens that the token ceiling counts: all, uncached (without prompt tokens read from a
    /// cache) or output (generated tokens, with reasoning).
    ///
    /// Before a call, its whole prompt counts as uncached, because a cache may miss.
    MaxTokensCounts max_tokens_counts: TokensCounted = TokensCounted::All, {
        unit: TokensCounted,
        off: Off::Refused("set \"all\" (or \"uncached\", \"output\")"),
        needs: Needs::Data(&[RunData::Tokens]),
        tighter: Lower,
        reached: "as `max_tokens`",
    }
    /// Share of each window of a subscription that may be used: 5h=80%, 7d=90%.
    ///
    /// As the provider reports it with its responses (Claude and ChatGPT plans), so that it includes what other
    /// programs use. A window that no response has reported has no limit.
    MaxWindow max_window: Option<WindowShares> = None, {
        unit: Windows,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "`error_max_window`, with the time until the reset as `retry_after`",
        before_turn: true,
    }
    /// Wait for the reset of a window that is used up to its share, instead of ending the run.
    ///
    /// A run whose `timeout` comes before the reset ends at once.
    WaitForWindow wait_for_window: bool = false, {
        unit: Switch,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the run pauses",
        in_guest: InGuest::Waiting,
    }
    /// Spending per minute or hour: $2/h, 100k tokens/m, or several with commas.
    ///
    /// A model call waits until the spending of the last minute or hour is below the rate. `max_tokens_counts` selects
    /// the tokens that count. A run whose `timeout` comes before that ends at once.
    MaxRate max_rate: Option<Rates> = None, {
        unit: Rates,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the run pauses; `error_timeout`, if its deadline comes first",
        in_guest: InGuest::Waiting,
    }
    /// Wall-clock ceiling of the run: 90s, 10m, 2h.
    Timeout timeout: Option<Duration> = None, {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::Data(&[RunData::Times]),
        tighter: Lower,
        reached: "`error_timeout`",
        before_turn: true,
    }
    /// Maximum time of one model call.
    TurnTimeout turn_timeout: Option<Duration> = Some(minutes(10)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the attempt fails, and may be retried",
        in_guest: InGuest::Timing,
    }
    /// Maximum time until the first content of a response; a model may think without sending
    /// anything.
    ///
    /// Long by default, because a model may reason without streaming its reasoning. Pings are not
    /// content.
    FirstContentTimeout first_content_timeout: Option<Duration> = Some(minutes(10)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the attempt fails, and may be retried",
        in_guest: InGuest::Timing,
    }
    /// Maximum time between two chunks of content in a stream.
    ///
    /// Pings are not content.
    StallTimeout stall_timeout: Option<Duration> = Some(seconds(60)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the attempt fails, and may be retried",
        in_guest: InGuest::Timing,
    }
    /// Maximum time that a streamed response only reasons: from its first reasoning, or the first one
    /// after visible output, to the next text or tool call.
    ///
    /// Such an attempt is repeated once at most, and a program's own loop is ended by the first. Silence before the
    /// first reasoning does not count.
    ThinkingTimeout thinking_timeout: Option<Duration> = Some(minutes(10)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the attempt fails; after one retry `error_thinking_starved`",
        in_guest: InGuest::Always,
    }
    /// Maximum time of one tool call.
    ///
    /// A tool may set its own limit instead.
    ToolTimeout tool_timeout: Option<Duration> = Some(seconds(60)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the call is answered as `timeout`",
        in_guest: InGuest::Timing,
    }
    /// Maximum time that the model may request for a `shell` call.
    ///
    /// Applies to every tool that lets the model request a time. If `tool_timeout` is longer, that
    /// applies instead.
    MaxToolTimeout max_tool_timeout: Option<Duration> = Some(minutes(10)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the call gets no more than this",
        in_guest: InGuest::Never,
    }
    /// Time that stopped tools have to end.
    ///
    /// Tools that are still running after it are killed.
    CancelGrace cancel_grace: Duration = seconds(2), {
        unit: Time,
        off: Off::Refused("set 0 to kill at once"),
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the tools are killed",
        in_guest: InGuest::Timing,
    }
    /// Maximum number of consecutive turns in which every tool call failed.
    MaxConsecutiveMistakes max_consecutive_mistakes: Option<u32> = Some(3), {
        unit: Turns,
        off: Off::Allowed,
        needs: Needs::Data(&[RunData::Results]),
        tighter: Lower,
        reached: "`error_consecutive_mistakes`",
        least: 1,
        before_turn: true,
    }
    /// Maximum number of consecutive turns that repeat themselves.
    ///
    /// Turns that are equal count whole. A turn that is like an earlier one but for numbers, times, ids, order
    /// or one word counts a third, or an eleventh if its calls themselves differ so and it has no new text. A result
    /// that comes nearer to an end (`40%`, `4/10`, `6 remaining`) is progress.
    MaxUnproductiveTurns max_unproductive_turns: Option<u32> = Some(3), {
        unit: Turns,
        off: Off::Allowed,
        needs: Needs::Data(&[RunData::Results]),
        tighter: Lower,
        reached: "`error_no_progress`",
        least: 1,
        before_turn: true,
    }
    /// Maximum number of repairs of a structured answer.
    ///
    /// Counted over the run; 0 allows none.
    MaxStructuredOutputRetries max_structured_output_retries: Option<u32> = Some(2), {
        unit: Count,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "`error_max_structured_output_retries`; with 0, `error_schema_validation`",
        in_guest: InGuest::Never,
    }
    /// Time during which a turn is retried after transient provider errors.
    ///
    /// Counted from the first failure. The waits together fit into it. Two retries are made
    /// even if the failed attempts themselves took longer than this.
    RetryFor retry_for: Option<Duration> = Some(seconds(60)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: LowerIfSet,
        reached: "the error's own ending",
        in_guest: InGuest::Retrying,
    }
    /// Maximum number of retries of a turn after transient provider errors.
    ///
    /// If both this and `retry_for` are off, nothing is retried. If it is off, a response whose connection was lost is
    /// retried at most five times, because each may be billed.
    MaxRetries max_retries: Option<u32> = None, {
        unit: Count,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the error's own ending",
        in_guest: InGuest::Retrying,
        default_note: "as many as fit into `retry_for`",
    }
    /// Maximum number of consecutive blank answers that get a nudge.
    ///
    /// An answer is blank if it is only reasoning, too. If the limit is off, the model is asked again until another limit ends the run.
    MaxEmptyTurns max_empty_turns: Option<u32> = Some(1), {
        unit: Turns,
        off: Off::Allowed,
        needs: Needs::Data(&[]),
        tighter: Lower,
        reached: "`error_no_progress`",
    }
    /// Maximum number of times that an answer cut by the token limit is continued.
    ///
    /// Counted over the run.
    MaxContinuations max_continuations: u32 = 0, {
        unit: Count,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "`error_output_truncated`",
        in_guest: InGuest::Injecting,
    }
    /// Maximum number of answers that the verifier judges.
    ///
    /// The output of a verifier that rejects an answer goes to the model, which then continues. If
    /// it is off, the verifier judges the last answer only, and a rejection does not change the
    /// ending.
    // Off is neither looser nor tighter, because then a rejected answer ends the run at once.
    VerifyRounds verify_rounds: Option<u32> = None, {
        unit: Count,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: LowerIfSet,
        reached: "`error_not_verified`",
        in_guest: InGuest::Never,
        least: 1,
    }
    /// Maximum time of the verifier in each round.
    VerifyTimeout verify_timeout: Option<Duration> = Some(minutes(10)), {
        unit: Time,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the round counts as rejected",
        in_guest: InGuest::Never,
    }
    /// Maximum number of tool calls that run at the same time.
    ToolConcurrency tool_concurrency: u32 = 4, {
        unit: Count,
        off: Off::Refused("set 1 to run one call at a time"),
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the other calls wait",
        in_guest: InGuest::Never,
        least: 1,
    }
    /// Ask the model for a hand-over when a ceiling on turns, cost, tokens or time ends the run.
    ///
    /// One extra call without tools, which is not a turn and is paid for within the same ceilings. Its
    /// text is `hand_over` in the outcome, and the ending stays that of the ceiling.
    WrapUp wrap_up: bool = false, {
        unit: Switch,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the run ends with a `hand_over`",
        in_guest: InGuest::Never,
    }
    /// Warn the model when a limit on turns, tool calls, dollars, tokens or time is used up by 80 %, and again by 95 %.
    ///
    /// As a line at the end of the next request, once for each share, so that cached prompts stay valid.
    WarnModel warn_model: bool = false, {
        unit: Switch,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "the next request has a line with what is left",
        in_guest: InGuest::Warning,
    }
    /// Tell the model before each turn what is left of the turns, tool calls, dollars, tokens and time.
    ///
    /// As a message at the end of the conversation, so that cached prompts stay valid.
    TellRemaining tell_remaining: bool = false, {
        unit: Switch,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "each turn begins with a message",
        in_guest: InGuest::Never,
    }
    /// Accept a complete answer that has an unknown finish value.
    ///
    /// Such an answer may then end the run as `stop`.
    AcceptUnknownFinish accept_unknown_finish: bool = false, {
        unit: Switch,
        off: Off::Allowed,
        needs: Needs::LiveRun,
        tighter: Lower,
        reached: "`stop` instead of an error",
    }
}

/// The error for an invalid limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The key as it was written.
    pub key: String,
    /// Description of the problem, with the expected value.
    pub problem: String,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit `{}`: {}", self.key, self.problem)
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// The tokens that a display of used tokens counts: those of the ceiling, or all tokens if no
    /// ceiling is set.
    pub fn tokens_counted(&self) -> TokensCounted {
        self.max_tokens.map(|_| self.max_tokens_counts).unwrap_or_default()
    }

    /// Returns limits that are all off, except those that no replay of a recorded run can reach
    /// ([`Needs::LiveRun`]), which have their defaults.
    pub fn none() -> Limits {
        let mut limits = Limits::default();
        limits.switch_off(|row| matches!(row.needs, Needs::Data(_)));
        limits
    }

    /// Switches off all limits of these rows that can be off.
    pub fn switch_off(&mut self, rows: impl Fn(&LimitRow) -> bool) {
        for row in TABLE.iter().filter(|row| row.off == Off::Allowed && rows(row)) {
            // `null` is a valid value of these rows, so there is no error to report.
            let _ = (row.set)(row, self, &Value::Null, false);
        }
    }

    /// Sets one limit by name. `null` and `"off"` disable it.
    ///
    /// # Errors
    /// The name is unknown, the value has the wrong type or is out of range, or the limit cannot be
    /// disabled. The message names the key and the valid values.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<(), LimitError> {
        let in_ms = key.strip_suffix("_ms");
        let row = |row: &&LimitRow| {
            row.name == key || (row.unit == Unit::Time && in_ms == Some(row.name))
        };
        match TABLE.iter().find(row) {
            Some(row) => (row.set)(row, self, value, row.name != key),
            None => Err(unknown_key(key, &Self::NAMES)),
        }
        .map_err(|problem| LimitError { key: key.to_owned(), problem })
    }

    /// Returns the first limit that counts money, so that each model needs a known price.
    pub fn bounds_cost_by(&self) -> Option<Limit> {
        let ceiling = self.max_budget_usd.map(|_| Limit::MaxBudgetUsd);
        let rate = self.max_rate.filter(Rates::bounds_cost).map(|_| Limit::MaxRate);
        ceiling.or(rate)
    }

    /// Returns these limits with other values by name, of which none may be looser: what a request may
    /// change of the limits of an agent.
    ///
    /// # Errors
    /// Names the limit that is unknown, invalid, or looser.
    ///
    /// ```
    /// use endstop_core::Limits;
    /// use serde_json::{Map, json};
    /// let own = Limits { max_turns: Some(10), ..Limits::default() };
    /// let changes = |turns: u32| Map::from_iter([("max_turns".to_owned(), json!(turns))]);
    /// assert_eq!(own.lowered(&changes(3)).unwrap().max_turns, Some(3));
    /// assert!(own.lowered(&changes(11)).is_err());
    /// ```
    pub fn lowered(&self, changes: &Map<String, Value>) -> Result<Limits, LimitError> {
        let mut limits = self.clone();
        for (name, value) in changes {
            limits.set(name, value)?;
        }
        match TABLE.iter().find(|row| row.is_looser(self, &limits)) {
            None => Ok(limits),
            Some(row) => {
                let problem = "a request may only lower the limit of its agent".to_owned();
                Err(LimitError { key: row.name.to_owned(), problem })
            }
        }
    }

    /// Returns the value of a limit by name, spelled as [`set`](Self::set) reads it, or `None` if
    /// the name is unknown.
    pub fn get(&self, key: &str) -> Option<Value> {
        LimitRow::of(key).map(|row| row.value(self).spelled())
    }
}

/// Builds the message for an unknown name: the nearest valid name first, then all of them.
pub fn unknown_key(key: &str, choices: &[&str]) -> String {
    let hint = did_you_mean(key, choices.iter().copied());
    format!("unknown name{hint}; expected one of {}", choices.join(", "))
}

#[cfg(test)]
mod tests;
