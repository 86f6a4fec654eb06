//! Each answer at each point: the table of `docs/src/hooks.md`, one test per cell. The runs have no
//! journal; `parked.rs` parks runs that have one.

use super::{Asks, Model, Ran, act, results};
use endstop::hook::{ChangedResult, ConsultPoint, HookDecision, Hooks, Park};
use endstop::{Agent, Message, Outcome, Permission, Role, Termination, ToolCall};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// The effect of an answer on a run that calls a tool in its first turn and answers in its second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Nothing,
    /// The model reads the text in its next turn.
    Told,
    /// The text is in the conversation, for its next run.
    ToldLater,
    /// The output cap of the next call.
    Cap,
    /// The run ends as halted, decided by the point.
    Halts,
    /// The run ends as a failure of the user's code, named after the point.
    Fault,
    /// The answer of the run stands; the halt is reported next to it.
    AlsoHalted,
    AlsoFault,
    Denied,
    /// The tool runs with the changed arguments.
    Changed,
    /// The model reads another result.
    NewResult,
    Withheld,
    /// The run continues with the text as the user's reply.
    Replied,
    /// The run continues with the reason.
    Vetoed,
}

fn answer(kind: &str, call: Option<ToolCall>) -> HookDecision {
    match kind {
        "proceed" => HookDecision::Proceed,
        "proceed_with" => HookDecision::ProceedWith("the note".to_owned()),
        "output_cap" => HookDecision::OutputCap(77),
        "change_call" => {
            let call = call.unwrap_or(ToolCall {
                id: "x".to_owned(),
                name: "act".to_owned(),
                arguments: String::new(),
            });
            HookDecision::ChangeCall(ToolCall { arguments: json!({"n": 2}).to_string(), ..call })
        }
        "change_result" => HookDecision::ChangeResult(ChangedResult::ok("changed")),
        "deny" => HookDecision::Deny("the note".to_owned()),
        "halt" => HookDecision::Halt("the note".to_owned()),
        "park" => HookDecision::Park(Park::default()),
        other => panic!("{other}"),
    }
}

fn name_of(point: &ConsultPoint) -> &'static str {
    match point {
        ConsultPoint::Prompt => "prompt",
        ConsultPoint::PreIteration { .. } => "pre_iteration",
        ConsultPoint::ChatParams { .. } => "chat_params",
        ConsultPoint::PreCall { .. } => "pre_call",
        ConsultPoint::PreTool { .. } => "pre_tool",
        ConsultPoint::Approval { .. } => "approval",
        ConsultPoint::PostTool { .. } => "post_tool",
        ConsultPoint::Reply => "reply",
        ConsultPoint::Stop { .. } => "stop",
        other => panic!("{other:?}"),
    }
}

/// Returns a hook or an approver that gives the answer once, at one point.
fn once(
    at: &'static str,
    kind: &'static str,
) -> Asks<impl Fn(ConsultPoint) -> HookDecision + Send + Sync> {
    let hooks = Hooks {
        prompt: at == "prompt",
        pre_iteration: at == "pre_iteration",
        chat_params: at == "chat_params",
        pre_call: at == "pre_call",
        pre_tool: at == "pre_tool",
        post_tool: at == "post_tool",
        reply: at == "reply",
        stop: at == "stop",
        on_event: false,
    };
    let asked = AtomicBool::new(false);
    Asks(hooks, move |point: ConsultPoint| {
        assert_eq!(name_of(&point), at);
        if asked.swap(true, Ordering::SeqCst) {
            return HookDecision::Proceed;
        }
        let call = match point {
            ConsultPoint::PreTool { call } | ConsultPoint::Approval { call } => Some(call),
            _ => None,
        };
        answer(kind, call)
    })
}

async fn run(at: &'static str, kind: &'static str) -> (Outcome, Vec<Value>, Vec<Option<u64>>) {
    let (ran, model) = (Ran::default(), Model::new());
    let caps = model.caps.clone();
    let builder = Agent::builder(model).tool(act(&ran));
    let builder = match at {
        "approval" => builder.permission("act", Permission::Ask).approver(once(at, kind)),
        _ => builder.hook(once(at, kind)),
    };
    let outcome = builder.build().unwrap().run("go").unwrap().await;
    let (ran, caps) = (ran.lock().unwrap().clone(), caps.lock().unwrap().clone());
    (outcome, ran, caps)
}

/// Returns the position of the note among the messages, and of the answer `fine`.
fn places(outcome: &Outcome) -> (Option<usize>, Option<usize>) {
    let place = |holds: &dyn Fn(&Message) -> bool| outcome.messages.iter().position(holds);
    let note =
        place(&|message| message.role == Role::User && message.plain_text().contains("the note"));
    (note, place(&|message| message.plain_text() == "fine"))
}

async fn check(at: &'static str, kind: &'static str, effect: Effect) {
    let (outcome, ran, caps) = run(at, kind).await;
    let by = (outcome.decided_by.layer.as_str(), outcome.decided_by.decision.as_str());
    let first = results(&outcome).first().map(|result| result.content.clone());
    let (note, fine) = places(&outcome);
    let what = format!("{at}, {kind}: {outcome:?}");
    let ends = match effect {
        Effect::Halts => Termination::ErrorHalted,
        Effect::Fault => Termination::ErrorDuringExecution,
        _ => Termination::Stop,
    };
    assert_eq!(outcome.termination, ends, "{what}");
    match effect {
        Effect::Halts => assert_eq!(by, ("hook", at), "{what}"),
        Effect::Fault => {
            assert_eq!(by, ("fault", at), "{what}");
            let named = format!("the answer `{kind}` is not valid at `{at}`");
            assert_eq!(outcome.decided_by.evidence, named);
        }
        _ => {}
    }
    let also: &[Termination] = match effect {
        Effect::AlsoHalted => &[Termination::ErrorHalted],
        Effect::AlsoFault => &[Termination::ErrorDuringExecution],
        _ => &[],
    };
    assert_eq!(outcome.also, also, "{what}");
    let turns = match effect {
        Effect::Replied | Effect::Vetoed => 3,
        Effect::Halts | Effect::Fault => outcome.turns,
        _ => 2,
    };
    assert_eq!(outcome.turns, turns, "{what}");
    let before_tool = !matches!(at, "post_tool" | "reply" | "stop");
    let arguments = match effect {
        Effect::Denied => vec![],
        Effect::Halts | Effect::Fault if before_tool => vec![],
        Effect::Changed => vec![json!({"n": 2})],
        _ => vec![json!({"n": 1})],
    };
    assert_eq!(ran, arguments, "{what}");
    match effect {
        Effect::Denied => assert_eq!(first.as_deref(), Some("denied: the note")),
        Effect::Withheld => {
            assert_eq!(first.as_deref(), Some("the result is withheld: the note"));
        }
        Effect::NewResult => assert_eq!(first.as_deref(), Some("changed")),
        Effect::Halts | Effect::Fault => assert_ne!(first.as_deref(), Some("done"), "{what}"),
        _ => assert_eq!(first.as_deref(), Some("done"), "{what}"),
    }
    match effect {
        Effect::Told => assert!(note.is_some() && note < fine, "{what}"),
        Effect::ToldLater | Effect::Replied | Effect::Vetoed => assert!(note > fine, "{what}"),
        _ => assert_eq!(note, None, "{what}"),
    }
    let cap = (effect == Effect::Cap).then_some(77);
    assert!(caps.iter().all(|sent| *sent == cap), "{what}: {caps:?}");
}

/// Defines a test for each cell of the table.
macro_rules! cells {
    ($($point:ident: $($answer:ident => $effect:ident),+;)+) => {
        $(mod $point {
            $(#[tokio::test]
            async fn $answer() {
                let (point, answer) = (stringify!($point), stringify!($answer));
                super::check(point, answer, super::Effect::$effect).await;
            })+
        })+
    };
}

cells! {
    prompt: proceed => Nothing, proceed_with => Told, output_cap => Cap, change_call => Fault,
        change_result => Fault, deny => Halts, halt => Halts, park => Fault;
    pre_iteration: proceed => Nothing, proceed_with => Told, output_cap => Cap,
        change_call => Fault, change_result => Fault, deny => Halts, halt => Halts, park => Fault;
    chat_params: proceed => Nothing, proceed_with => Told, output_cap => Cap,
        change_call => Fault, change_result => Fault, deny => Halts, halt => Halts, park => Fault;
    pre_call: proceed => Nothing, proceed_with => Told, output_cap => Cap, change_call => Fault,
        change_result => Fault, deny => Halts, halt => Halts, park => Fault;
    pre_tool: proceed => Nothing, proceed_with => Told, output_cap => Nothing,
        change_call => Changed, change_result => Fault, deny => Denied, halt => Halts,
        park => Fault;
    approval: proceed => Nothing, proceed_with => Told, output_cap => Nothing,
        change_call => Changed, change_result => Fault, deny => Denied, halt => Halts;
    post_tool: proceed => Nothing, proceed_with => Told, output_cap => Nothing,
        change_call => Fault, change_result => NewResult, deny => Withheld, halt => Halts,
        park => Fault;
    reply: proceed => Nothing, proceed_with => Replied, output_cap => Nothing,
        change_call => AlsoFault, change_result => AlsoFault, deny => Replied, halt => AlsoHalted,
        park => AlsoFault;
    stop: proceed => Nothing, proceed_with => ToldLater, output_cap => Nothing,
        change_call => AlsoFault, change_result => AlsoFault, deny => Vetoed, halt => AlsoHalted,
        park => AlsoFault;
}
