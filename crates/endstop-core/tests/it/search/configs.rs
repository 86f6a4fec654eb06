//! The small worlds of the search: the specification of each run, and the answers it may get.

use super::watch::{Seen, Watch};
use crate::laws::begin_as_branch;
use endstop_core::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A small world.
pub struct Config {
    /// Name of the world.
    pub name: &'static str,
    /// Additional search depth, for worlds in which little can happen at a time.
    pub deeper: usize,
    pub(super) spec: fn() -> RunSpec,
    /// The policy, if there is one. It may panic on a second call of `begin_turn`.
    pub(super) policy: Option<Panics>,
    pub(super) price: Option<Price>,
    /// Size of the shared budget: nano-dollars and tokens.
    pub(super) tool_budget: [u64; 2],
    /// Amount that a tool spends on its own model calls.
    pub(super) spends: u64,
    /// Possible responses of the model. The first ends a run, the second lets it continue.
    pub(super) replies: Vec<Reply>,
    pub(super) failures: Vec<Failure>,
    /// Possible streamed content before the end of a turn, at most two deltas per attempt.
    pub(super) pieces: Vec<Piece>,
    /// Possible reports of a tool; the first is a success.
    pub(super) reports: Vec<Report>,
    /// The ways in which a user may steer the run, each once: a message, or other limits.
    pub(super) steers: Vec<Steer>,
    /// `true` if the process may be suspended during a model call.
    pub(super) suspends: bool,
    /// `true` if the run may be parked for an approval, and its process may die once.
    pub(super) parks: bool,
    /// Possible answers of hooks and people. The first lets the run continue, the second refuses.
    pub(super) answers: Vec<Said>,
}

/// Additional places at which the policy panics, next to the marks in the text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Panics {
    AtMarks,
    AtBegin,
}

/// Streamed content.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    Text(&'static str),
    /// Characters of reasoning.
    Hidden(u64),
}

/// A response of the model.
pub(super) struct Reply {
    pub(super) text: &'static str,
    /// Id, tool and arguments.
    pub(super) calls: &'static [(&'static str, &'static str, &'static str)],
    pub(super) reason: SignalReason,
    /// `true` if the response uses up its output cap.
    pub(super) at_cap: bool,
    /// `true` if the provider reports the usage.
    pub(super) counted: bool,
}

const fn says(text: &'static str, reason: SignalReason) -> Reply {
    Reply { text, calls: &[], reason, at_cap: false, counted: true }
}

const fn calls(calls: &'static [(&'static str, &'static str, &'static str)]) -> Reply {
    Reply { text: "", calls, reason: SignalReason::ToolUse, at_cap: false, counted: true }
}

/// A failed model call.
pub(super) struct Failure {
    pub(super) class: ErrorClass,
    pub(super) retry_after_ms: Option<u64>,
    /// `true` if some of the response had arrived.
    pub(super) partial: bool,
}

const fn fails(class: ErrorClass) -> Failure {
    Failure { class, retry_after_ms: None, partial: false }
}

/// A report of a tool.
#[derive(Clone, Copy)]
pub(super) enum Report {
    Says(ToolStatus, &'static str),
    Halts,
}

/// An answer of a hook or a person.
#[derive(Clone, Copy)]
pub(super) enum Said {
    Proceed,
    With,
    Cap,
    Deny,
    Halt,
    /// Changes the call or the result; at other points the answer is not valid.
    Change,
    /// Changes a call to arguments that do not parse.
    Break,
}

/// A way to steer a run.
#[derive(Clone, Copy)]
pub(super) enum Steer {
    Say,
    /// Sets a limit, by name, to a value in JSON.
    Limit(&'static str, &'static str),
    /// The provider reports that this share of a window is used, which resets in so many seconds.
    Window(f64, u64),
}

const DONE: Reply = says("done", SignalReason::NaturalCompletion);
const READ: Reply = calls(&[("a", "read", "{}")]);
const READS: Reply = calls(&[("a", "read", "{}"), ("b", "read", "{\"n\":1}")]);
const MIXED: Reply = calls(&[("a", "read", "{}"), ("b", "write", "{}")]);
const FINISH: Reply = calls(&[("f", "finish", "{\"deliverable\":\"d\"}")]);
const OK: Report = Report::Says(ToolStatus::Ok, "same");
const NO: Report = Report::Says(ToolStatus::Error, "no");

fn limits() -> Limits {
    Limits {
        max_turns: Some(3),
        max_consecutive_mistakes: Some(2),
        max_unproductive_turns: Some(2),
        max_structured_output_retries: Some(1),
        max_retries: Some(1),
        max_continuations: 1,
        tool_concurrency: 2,
        turn_timeout: Some(Duration::from_millis(400)),
        first_content_timeout: Some(Duration::from_millis(200)),
        stall_timeout: Some(Duration::from_millis(150)),
        tool_timeout: Some(Duration::from_millis(50)),
        cancel_grace: Duration::from_millis(20),
        ..Limits::default()
    }
}

fn spec() -> RunSpec {
    RunSpec {
        limits: limits(),
        finish_tool: false,
        output_cap: Some(1000),
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "do it")])
    }
}

fn tool(name: &str, permission: Permission) -> ToolPolicy {
    ToolPolicy {
        name: name.to_owned(),
        parallel_safe: name == "read",
        runs_code: name == "code",
        permission,
        ..ToolPolicy::default()
    }
}

/// Returns all small worlds.
pub fn configs() -> Vec<Config> {
    vec![
        plain(),
        tools(),
        approval(),
        parked(),
        background(),
        deadline(),
        suspended(),
        steered(),
        windows(),
        tool_calls(),
        hooks(),
        changes(),
        budget(),
        ceilings(),
        compaction(),
        compaction_that_fits(),
        structured(),
        verified(),
        verdict(),
        hand_over(),
        hand_over_within_ceilings(),
        policy(),
        panics(),
        panics_at_begin(),
        fallback(),
        fallback_within_ceilings(),
    ]
}

impl Config {
    /// `true` if the run has fallback models.
    pub(super) fn falls_back(&self) -> bool {
        !(self.spec)().fallbacks.is_empty()
    }
}

/// A model that a run calls after another one has failed.
fn model(name: &str, price: Option<Price>, context_window: Option<u64>) -> FallbackModel {
    let (provider, model) = (Some("other".to_owned()), Some(name.to_owned()));
    FallbackModel { provider, model, price, context_window, ..FallbackModel::default() }
}

/// Two fallbacks, the second with a window that the prompt does not fit into.
fn fallback() -> Config {
    Config {
        name: "fallback",
        deeper: 2,
        spec: || RunSpec {
            limits: Limits { timeout: Some(Duration::from_millis(500)), ..limits() },
            tools: vec![tool("read", Permission::Allow)].into(),
            hooks: Hooks { pre_call: true, ..Hooks::default() },
            compaction: CompactionSpec { reactive: true, ..CompactionSpec::default() },
            fallbacks: vec![model("one", None, None), model("two", None, Some(1))],
            ..spec()
        },
        replies: vec![DONE, READ],
        failures: vec![
            fails(ErrorClass::NotFound),
            Failure { partial: true, ..fails(ErrorClass::Overloaded) },
            Failure { retry_after_ms: Some(600), ..fails(ErrorClass::RateLimit) },
            fails(ErrorClass::InvalidRequest),
        ],
        pieces: vec![],
        // The process may die, also in the middle of a switch.
        parks: true,
        answers: vec![Said::Proceed, Said::Deny],
        ..plain()
    }
}

/// A fallback at another price, within ceilings and a shared budget.
fn fallback_within_ceilings() -> Config {
    Config {
        name: "fallback within ceilings",
        deeper: 1,
        spec: || RunSpec {
            limits: Limits {
                max_budget_usd: Some(0.01),
                max_tokens: Some(4_000),
                max_retries: Some(0),
                ..limits()
            },
            shared_budget: true,
            tools: vec![tool("read", Permission::Allow)].into(),
            fallbacks: vec![
                model("dear", Some(price(4)), None),
                model("free", Some(price(0)), None),
            ],
            ..spec()
        },
        price: Some(price(1)),
        tool_budget: [9_000_000, 6_000],
        replies: vec![DONE, READ, Reply { counted: false, ..DONE }],
        failures: vec![
            fails(ErrorClass::ServerError),
            Failure { partial: true, ..fails(ErrorClass::Overloaded) },
        ],
        pieces: vec![Piece::Text("so")],
        ..plain()
    }
}

/// A price of this many dollars per million tokens.
fn price(usd: u64) -> Price {
    Price {
        input: NanoUsd(usd * 1_000_000_000),
        output: NanoUsd(usd * 2_000_000_000),
        ..Price::default()
    }
}

fn plain() -> Config {
    Config {
        name: "plain",
        deeper: 0,
        spec,
        policy: None,
        price: None,
        tool_budget: [0, 0],
        spends: 0,
        replies: vec![
            DONE,
            says("more", SignalReason::Paused),
            says("done", SignalReason::StopSequence),
            says("cut", SignalReason::TokenLimitReached),
            says("no", SignalReason::ContentFiltered),
            says("what", SignalReason::Unknown),
            says("half", SignalReason::InProgress),
            says("", SignalReason::ErrorTermination),
            says("", SignalReason::NaturalCompletion),
            says(" ", SignalReason::ToolUse),
            Reply { at_cap: true, ..says("", SignalReason::TokenLimitReached) },
            Reply { counted: false, ..DONE },
            READ,
        ],
        failures: vec![
            fails(ErrorClass::ServerError),
            fails(ErrorClass::Authentication),
            fails(ErrorClass::InvalidRequest),
            fails(ErrorClass::ContextLengthExceeded),
            fails(ErrorClass::ContentPolicy),
            fails(ErrorClass::UnknownError),
            Failure { retry_after_ms: Some(120_000), ..fails(ErrorClass::RateLimit) },
            Failure { partial: true, ..fails(ErrorClass::IncompleteStream) },
        ],
        pieces: vec![Piece::Text(""), Piece::Text("so"), Piece::Hidden(8)],
        reports: vec![OK],
        steers: vec![],
        suspends: false,
        parks: false,
        answers: vec![Said::Proceed],
    }
}

/// A branch of another run, which a user steers while it works.
fn steered() -> Config {
    Config {
        name: "steered branch",
        deeper: 2,
        spec: || {
            let mut branched = RunSpec {
                limits: Limits { timeout: Some(Duration::from_millis(500)), ..limits() },
                tools: vec![tool("read", Permission::Allow)].into(),
                finish_tool: true,
                hooks: Hooks { pre_call: true, ..Hooks::default() },
                ..spec()
            };
            begin_as_branch(&mut branched);
            branched
        },
        replies: vec![DONE, READ, FINISH],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK],
        answers: vec![Said::Proceed, Said::Deny],
        steers: vec![
            Steer::Say,
            Steer::Limit("max_turns", "1"),
            Steer::Limit("max_turns", "5"),
            Steer::Limit("timeout", "\"50ms\""),
        ],
        ..plain()
    }
}

/// A subscription whose window closes, and a run that waits for it.
fn windows() -> Config {
    Config {
        name: "windows",
        deeper: 1,
        spec: || RunSpec {
            limits: Limits {
                max_window: "5h=80%".parse().ok(),
                wait_for_window: true,
                wrap_up: true,
                timeout: Some(Duration::from_millis(2_500)),
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow)].into(),
            ..spec()
        },
        replies: vec![DONE, READ],
        failures: vec![Failure { retry_after_ms: Some(120_000), ..fails(ErrorClass::RateLimit) }],
        pieces: vec![],
        reports: vec![OK],
        // The process may die in a pause.
        parks: true,
        steers: vec![
            Steer::Window(0.8, 2),
            Steer::Window(0.1, 1),
            Steer::Window(1.0, 3),
            Steer::Limit("wait_for_window", "false"),
            Steer::Limit("max_window", "\"off\""),
            Steer::Limit("max_rate", "\"1 tokens/m\""),
        ],
        ..plain()
    }
}

/// Limits on the tool calls of the run, and on those of one tool.
fn tool_calls() -> Config {
    Config {
        name: "tool calls",
        deeper: 2,
        spec: || RunSpec {
            limits: Limits { max_tool_calls: Some(3), ..limits() },
            tools: vec![
                ToolPolicy { max_calls: Some(2), ..tool("read", Permission::Allow) },
                ToolPolicy { background: true, ..tool("write", Permission::Allow) },
            ]
            .into(),
            finish_tool: true,
            ..spec()
        },
        replies: vec![DONE, READS, MIXED, FINISH],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK],
        steers: vec![Steer::Limit("max_tool_calls", "5"), Steer::Limit("max_tool_calls", "1")],
        ..plain()
    }
}

/// A model that reasons for too long, in a process that is suspended.
fn suspended() -> Config {
    Config {
        name: "suspended process",
        deeper: 3,
        spec: || RunSpec {
            limits: Limits {
                timeout: Some(Duration::from_millis(500)),
                thinking_timeout: Some(Duration::from_millis(60)),
                stall_timeout: Some(Duration::from_millis(80)),
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow)].into(),
            ..spec()
        },
        replies: vec![DONE, READ],
        failures: vec![],
        pieces: vec![Piece::Text("so"), Piece::Hidden(4)],
        reports: vec![OK],
        suspends: true,
        ..plain()
    }
}

fn tools() -> Config {
    Config {
        name: "tools",
        deeper: 0,
        spec: || RunSpec {
            tools: vec![
                tool("read", Permission::Allow),
                tool("write", Permission::Allow),
                tool("secret", Permission::Deny),
            ]
            .into(),
            finish_tool: true,
            ..spec()
        },
        replies: vec![
            DONE,
            READS,
            MIXED,
            FINISH,
            calls(&[("a", "read", "{}"), ("f", "finish", "{\"infeasible\":\"cannot\"}")]),
            calls(&[("x", "nope", "{}"), ("a", "read", "{broken"), ("s", "secret", "{}")]),
            Reply { reason: SignalReason::NaturalCompletion, text: "and", ..READ },
            Reply { reason: SignalReason::TokenLimitReached, ..READ },
            Reply { at_cap: true, ..READ },
            Reply { reason: SignalReason::ContentFiltered, ..READ },
            Reply { reason: SignalReason::Paused, ..READ },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Hidden(4)],
        reports: vec![OK, NO, Report::Halts, Report::Says(ToolStatus::Aborted, "stopped")],
        ..plain()
    }
}

fn approval() -> Config {
    Config {
        name: "approval",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow), tool("write", Permission::Ask)].into(),
            finish_tool: true,
            hooks: Hooks { pre_tool: true, ..Hooks::default() },
            ..spec()
        },
        replies: vec![
            DONE,
            MIXED,
            calls(&[("a", "write", "{}"), ("b", "read", "{}")]),
            calls(&[("a", "write", "{}"), ("f", "finish", "{}")]),
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK, NO],
        answers: vec![Said::Proceed, Said::Deny, Said::Halt],
        ..plain()
    }
}

/// Approvals of repeatable tools, in a run that may be parked, and whose process may die.
fn parked() -> Config {
    Config {
        name: "parked",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![
                ToolPolicy { repeatable: true, ..tool("read", Permission::Ask) },
                ToolPolicy { repeatable: true, ..tool("write", Permission::Ask) },
            ]
            .into(),
            finish_tool: true,
            ..spec()
        },
        parks: true,
        replies: vec![DONE, MIXED],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK, NO],
        answers: vec![Said::Proceed, Said::Deny],
        ..plain()
    }
}

/// Background calls, with a message of the user, and a process that may die.
fn background() -> Config {
    Config {
        name: "background",
        deeper: 1,
        spec: || RunSpec {
            tools: vec![
                ToolPolicy { background: true, ..tool("build", Permission::Allow) },
                tool("read", Permission::Allow),
            ]
            .into(),
            finish_tool: true,
            limits: Limits { max_tool_timeout: Some(Duration::from_millis(60)), ..limits() },
            hooks: Hooks { post_tool: true, ..Hooks::default() },
            ..spec()
        },
        parks: true,
        replies: vec![
            DONE,
            calls(&[("a", "build", "{}"), ("b", "read", "{}")]),
            calls(&[("a", "build", "{}")]),
            FINISH,
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK, Report::Halts],
        steers: vec![Steer::Say],
        answers: vec![Said::Proceed, Said::Deny, Said::Change],
        ..plain()
    }
}

fn deadline() -> Config {
    Config {
        name: "deadline",
        deeper: 3,
        spec: || RunSpec {
            limits: Limits {
                timeout: Some(Duration::from_millis(200)),
                turn_timeout: Some(Duration::from_millis(120)),
                first_content_timeout: Some(Duration::from_millis(100)),
                stall_timeout: Some(Duration::from_millis(80)),
                tool_timeout: Some(Duration::from_millis(120)),
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow), tool("write", Permission::Ask)].into(),
            hooks: Hooks { stop: true, chat_params: true, ..Hooks::default() },
            ..spec()
        },
        replies: vec![DONE, READS, MIXED],
        failures: vec![fails(ErrorClass::Overloaded)],
        pieces: vec![Piece::Hidden(4)],
        reports: vec![OK, Report::Halts],
        answers: vec![Said::Proceed, Said::Deny],
        ..plain()
    }
}

fn hooks() -> Config {
    Config {
        name: "hooks",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Ask)].into(),
            finish_tool: true,
            hooks: Hooks {
                prompt: true,
                pre_iteration: true,
                chat_params: true,
                pre_tool: true,
                stop: true,
                pre_call: true,
                ..Hooks::default()
            },
            ..spec()
        },
        replies: vec![DONE, READ, FINISH],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        reports: vec![OK],
        answers: vec![Said::Proceed, Said::Deny, Said::Halt, Said::With, Said::Cap],
        ..plain()
    }
}

fn changes() -> Config {
    Config {
        name: "changes",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![
                ToolPolicy { parallel_safe: true, ..tool("read", Permission::Allow) },
                tool("write", Permission::Ask),
            ]
            .into(),
            finish_tool: true,
            hooks: Hooks { pre_tool: true, post_tool: true, ..Hooks::default() },
            ..spec()
        },
        replies: vec![DONE, READS, MIXED],
        failures: vec![],
        pieces: vec![],
        reports: vec![OK, Report::Halts],
        answers: vec![Said::Proceed, Said::Deny, Said::Change, Said::Break],
        ..plain()
    }
}

fn budget() -> Config {
    Config {
        name: "budget",
        deeper: 3,
        spec: || RunSpec {
            limits: Limits {
                max_budget_usd: Some(0.01),
                max_tokens: Some(6000),
                timeout: Some(Duration::from_millis(300)),
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow)].into(),
            shared_budget: true,
            ..spec()
        },
        // A thousandth of a dollar for a hundred tokens of output.
        price: Some(Price {
            input: NanoUsd(1_000_000_000),
            output: NanoUsd(10_000_000_000),
            ..Price::default()
        }),
        tool_budget: [18_000_000, 2_500],
        replies: vec![
            DONE,
            READ,
            Reply { at_cap: true, ..says("cut", SignalReason::TokenLimitReached) },
            Reply { at_cap: true, ..says("done", SignalReason::NaturalCompletion) },
            Reply { at_cap: true, ..says("", SignalReason::TokenLimitReached) },
            Reply { counted: false, ..READ },
        ],
        failures: vec![
            fails(ErrorClass::ServerError),
            Failure { partial: true, ..fails(ErrorClass::IncompleteStream) },
        ],
        pieces: vec![Piece::Hidden(4000)],
        reports: vec![OK, NO],
        ..plain()
    }
}

fn ceilings() -> Config {
    Config {
        name: "ceilings",
        deeper: 1,
        spec: || RunSpec {
            limits: Limits { max_tokens: Some(900), max_budget_usd: Some(0.02), ..limits() },
            tools: vec![tool("read", Permission::Allow)].into(),
            ..spec()
        },
        replies: vec![
            DONE,
            says("more", SignalReason::Paused),
            READ,
            Reply { at_cap: true, ..says("cut", SignalReason::TokenLimitReached) },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Text("so"), Piece::Hidden(4000)],
        spends: 9_000_000,
        ..budget()
    }
}

/// An earlier conversation that a compaction can drop.
fn talked() -> RunSpec {
    let earlier = [(Role::User, "who are you?"), (Role::Assistant, "a robot that reads")];
    let mut messages: Vec<Message> = (1..)
        .zip(earlier)
        .map(|(id, (role, text))| Message::text(MessageId(id), role, text))
        .collect();
    messages.push(Message::text(MessageId(3), Role::User, "do it"));
    RunSpec { messages, ..spec() }
}

/// A run with a known context window, so that a failed proactive compaction does not end it.
fn compaction_that_fits() -> Config {
    Config {
        name: "compaction that fits",
        deeper: 2,
        spec: || RunSpec { context_window: Some(100_000), ..(compaction().spec)() },
        ..compaction()
    }
}

fn compaction() -> Config {
    Config {
        name: "compaction",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow)].into(),
            compaction: CompactionSpec {
                proactive: ProactiveCompaction::Ask,
                reactive: true,
                ..CompactionSpec::default()
            },
            ..talked()
        },
        replies: vec![DONE, READ, says("more", SignalReason::Paused)],
        failures: vec![
            fails(ErrorClass::ContextLengthExceeded),
            fails(ErrorClass::RequestTooLarge),
            fails(ErrorClass::ServerError),
        ],
        pieces: vec![],
        reports: vec![OK],
        ..plain()
    }
}

fn structured() -> Config {
    Config {
        name: "structured output",
        deeper: 1,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow)].into(),
            finish_tool: true,
            output_schema: true,
            hooks: Hooks { stop: true, ..Hooks::default() },
            ..spec()
        },
        policy: Some(Panics::AtMarks),
        replies: vec![
            DONE,
            READ,
            FINISH,
            says("", SignalReason::NaturalCompletion),
            says("cut", SignalReason::TokenLimitReached),
            Reply { text: "[stop]", ..READ },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Text("[stop]")],
        reports: vec![OK],
        answers: vec![Said::Proceed, Said::Deny, Said::Halt],
        ..plain()
    }
}

/// Rounds of verification within a deadline, with an ending that the answer outranks.
fn verified() -> Config {
    Config {
        name: "verification rounds",
        deeper: 3,
        spec: || RunSpec {
            limits: Limits {
                verify_rounds: Some(2),
                verify_timeout: Some(Duration::from_millis(90)),
                timeout: Some(Duration::from_millis(300)),
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow)].into(),
            finish_tool: true,
            verifier: true,
            hooks: Hooks { stop: true, ..Hooks::default() },
            ..spec()
        },
        replies: vec![DONE, READ, FINISH],
        failures: vec![],
        pieces: vec![],
        reports: vec![OK],
        answers: vec![Said::Proceed, Said::Deny, Said::Halt],
        ..plain()
    }
}

/// A verifier whose verdict does not change the ending.
fn verdict() -> Config {
    Config {
        name: "verdict after the answer",
        deeper: 2,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow)].into(),
            finish_tool: true,
            verifier: true,
            ..spec()
        },
        policy: Some(Panics::AtMarks),
        replies: vec![DONE, READ, FINISH, says("[stop]", SignalReason::NaturalCompletion)],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Text("[stop]")],
        reports: vec![OK],
        ..plain()
    }
}

/// A hand-over after the last turn, or in the time that is kept for it.
fn hand_over() -> Config {
    Config {
        name: "hand-over",
        deeper: 2,
        spec: || RunSpec {
            limits: Limits {
                max_turns: Some(1),
                timeout: Some(Duration::from_millis(300)),
                wrap_up: true,
                ..limits()
            },
            tools: vec![tool("read", Permission::Allow)].into(),
            hooks: Hooks { pre_call: true, ..Hooks::default() },
            ..spec()
        },
        replies: vec![DONE, READ, says("more", SignalReason::Paused)],
        failures: vec![Failure { partial: true, ..fails(ErrorClass::IncompleteStream) }],
        pieces: vec![Piece::Text("so"), Piece::Hidden(4)],
        reports: vec![OK],
        answers: vec![Said::Proceed, Said::Deny],
        ..plain()
    }
}

fn hand_over_within_ceilings() -> Config {
    Config {
        name: "hand-over within ceilings",
        deeper: 3,
        spec: || {
            let mut spec = (budget().spec)();
            (spec.limits.wrap_up, spec.limits.max_turns) = (true, Some(2));
            (spec.limits.max_tokens, spec.limits.max_budget_usd) = (Some(9000), Some(0.02));
            spec
        },
        replies: vec![
            DONE,
            READ,
            Reply { at_cap: true, ..says("cut", SignalReason::TokenLimitReached) },
            Reply { counted: false, ..READ },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![],
        ..budget()
    }
}

fn policy() -> Config {
    Config {
        name: "policy in mid-stream",
        deeper: 0,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow), tool("code", Permission::Allow)].into(),
            finish_tool: true,
            ..spec()
        },
        policy: Some(Panics::AtMarks),
        replies: vec![
            DONE,
            READS,
            says("[stop]", SignalReason::NaturalCompletion),
            says("[stop]", SignalReason::TokenLimitReached),
            says("[stop]", SignalReason::ContentFiltered),
            says("[stuck]", SignalReason::NaturalCompletion),
            says("[halt]", SignalReason::NaturalCompletion),
            says("[tell]", SignalReason::NaturalCompletion),
            Reply { text: "[stop]", ..READS },
            Reply { text: "[tell]", calls: &[("c", "code", "{}")], ..READ },
            Reply { text: "[stop]", ..FINISH },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Text("[st"), Piece::Text("op]"), Piece::Hidden(4)],
        reports: vec![OK, NO, Report::Says(ToolStatus::Ok, "[stop]")],
        ..plain()
    }
}

fn panics() -> Config {
    Config {
        name: "policy that panics",
        deeper: 1,
        spec: || RunSpec { tools: vec![tool("read", Permission::Allow)].into(), ..spec() },
        policy: Some(Panics::AtMarks),
        replies: vec![
            DONE,
            READS,
            says("[panic]", SignalReason::NaturalCompletion),
            says("[late panic]", SignalReason::NaturalCompletion),
            Reply { text: "[panic]", ..READS },
            Reply { text: "[late panic]", ..READS },
        ],
        failures: vec![fails(ErrorClass::ServerError)],
        pieces: vec![Piece::Text("[pan"), Piece::Text("ic]")],
        reports: vec![OK, Report::Says(ToolStatus::Ok, "[late panic]")],
        ..plain()
    }
}

fn panics_at_begin() -> Config {
    Config {
        name: "policy that panics before a turn",
        deeper: 3,
        spec: || RunSpec {
            tools: vec![tool("read", Permission::Allow)].into(),
            shared_budget: true,
            ..spec()
        },
        policy: Some(Panics::AtBegin),
        replies: vec![DONE, READS, says("more", SignalReason::Paused)],
        reports: vec![OK],
        pieces: vec![],
        ..budget()
    }
}

impl Config {
    /// The run, and what its policy has seen.
    pub(super) fn run(&self) -> (Run, Arc<Mutex<Seen>>) {
        let seen = Arc::<Mutex<Seen>>::default();
        let policy = self.policy.map(|panics| {
            Box::new(Watch { seen: Arc::clone(&seen), at_begin: panics == Panics::AtBegin }) as _
        });
        (Run::new(RunSpec { policy, ..(self.spec)() }), seen)
    }
}
