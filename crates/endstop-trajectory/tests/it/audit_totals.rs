//! Tests that the totals of an audit are the sums of its sessions.

use endstop_trajectory::audit::{Audit, How, Session};
use endstop_trajectory::{
    Call, CallResult, Ending, ModelCall, Prices, Role, Spent, Step, Totals, Trajectory, Usage,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn tokens() -> impl Strategy<Value = Option<u64>> {
    option::of(prop_oneof![4 => 0_u64..100_000, 1 => Just(u64::MAX)])
}

fn model() -> impl Strategy<Value = Option<&'static str>> {
    option::of(proptest::sample::select(vec![
        "claude-opus-4-5",
        "gpt-5",
        "no-such-model",
        "",
        "claude-sonnet-4-5-20250929",
    ]))
}

fn step() -> impl Strategy<Value = Step<'static>> {
    let role = prop_oneof![3 => Just(Role::Agent), 1 => Just(Role::User), 1 => Just(Role::System)];
    let results = vec((any::<bool>(), option::of(-1_i64..3)), 0..3);
    (
        role,
        0_usize..3,
        results,
        (tokens(), tokens(), tokens()),
        model(),
        option::of(0.0..5.0),
        0..60,
    )
        .prop_map(
            |(role, calls, results, (input, output, cached), model, cost_usd, second)| Step {
                text: if calls == 0 { "Done." } else { "" }.into(),
                calls: (0..calls)
                    .map(|n| Call {
                        name: "Bash".into(),
                        arguments: format!("{{\"command\":\"ls {n}\"}}").into(),
                        ..Call::default()
                    })
                    .collect(),
                results: results
                    .into_iter()
                    .map(|(is_error, exit_code)| CallResult {
                        content: "a".into(),
                        is_error,
                        exit_code,
                        ..CallResult::default()
                    })
                    .collect(),
                usage: (input.is_some() || output.is_some()).then(|| {
                    Box::new(Usage {
                        prompt_tokens: input,
                        completion_tokens: output,
                        cached_tokens: cached,
                        ..Usage::default()
                    })
                }),
                model: model.map(Into::into),
                cost_usd,
                at: Some(format!("2026-01-01T00:00:{second:02}Z").into()),
                ..Step::new(role)
            },
        )
}

fn run() -> impl Strategy<Value = Trajectory<'static>> {
    let leaf =
        (vec(step(), 0..8), any::<bool>(), any::<bool>()).prop_map(|(steps, blind, subagent)| {
            let mut run = Trajectory { steps, ..Trajectory::new("s") };
            // Each run also paid for a call that is not a turn, if its first step has a usage.
            let first = run.steps.first().and_then(|step| Some((step.usage.clone()?, step)));
            run.totals.outside_turns.extend(first.map(|(usage, step)| ModelCall {
                model: step.model.as_deref().map(str::to_owned),
                usage: *usage,
                cost_usd: step.cost_usd,
            }));
            run.tags.extend(blind.then(|| "no_results".into()));
            run.tags.extend(subagent.then(|| "subagent".into()));
            run
        });
    let reason = option::of(proptest::sample::select(vec!["final", "max_turns", "cancelled"]));
    let leaf = leaf.boxed();
    (leaf.clone(), vec(leaf, 0..3), reason).prop_map(|(run, children, reason)| Trajectory {
        children,
        ending: reason.map(|reason| Ending { reason: reason.into(), ..Ending::default() }),
        ..run
    })
}

fn sum(all: impl Iterator<Item = Spent>) -> Spent {
    all.collect::<Vec<_>>().iter().sum()
}

fn audited(sessions: &[Session]) -> Audit {
    let mut audit = Audit::new(4);
    sessions.iter().for_each(|session| audit.add(session.clone()));
    audit
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn totals_are_sums_of_sessions(runs in vec(run(), 0..7)) {
        let sessions: Vec<Session> =
            runs.iter().map(|run| Session::of(run, &Prices::new())).collect();
        let audit = audited(&sessions);
        let count = |of: &dyn Fn(&Session) -> u64| sessions.iter().map(of).sum::<u64>();
        prop_assert_eq!(audit.sessions, sessions.len() as u64);
        prop_assert_eq!(audit.subagents, count(&|one| u64::from(one.subagent)));
        prop_assert_eq!(audit.requests, count(&|one| one.requests));
        prop_assert_eq!(audit.calls, count(&|one| one.calls));
        prop_assert_eq!(audit.failures, count(&|one| one.failures));
        prop_assert_eq!(audit.lacking_results, count(&|one| u64::from(one.lacks_results)));
        prop_assert_eq!(audit.cost_recorded, count(&|one| u64::from(one.cost_recorded)));
        prop_assert_eq!(audit.wrong, count(&|one| u64::from(one.is_wrong())));
        prop_assert_eq!(audit.loops, count(&|one| one.loops.len() as u64));
        prop_assert_eq!(audit.stopped, count(&|one| one.stops.len() as u64));
        prop_assert_eq!(audit.stopped_as.values().sum::<u64>(), audit.stopped);
        prop_assert_eq!(audit.spent, sum(sessions.iter().map(|one| one.spent)));
        prop_assert_eq!(audit.formats.values().sum::<u64>(), audit.sessions);
        prop_assert_eq!(audit.ended.values().map(|one| one.sessions).sum::<u64>(), audit.sessions);
        prop_assert_eq!(sum(audit.ended.values().map(|one| one.spent)), audit.spent);
        let wrong = sessions.iter().filter(|one| one.is_wrong());
        prop_assert_eq!(audit.in_question, sum(wrong.map(Session::in_question)));
        prop_assert!(audit.worst.len() as u64 == audit.wrong.min(4));
        prop_assert!(audit.worst.iter().all(Session::is_wrong));
    }

    #[test]
    fn merged_parts_equal_one_audit(
        runs in vec(run(), 0..9),
        cuts in vec(0_usize..3, 9),
        reverse in any::<bool>(),
    ) {
        let sessions: Vec<Session> =
            runs.iter().map(|run| Session::of(run, &Prices::new())).collect();
        let mut parts = [Audit::new(4), Audit::new(4), Audit::new(4)];
        for (session, part) in sessions.iter().zip(&cuts) {
            parts[*part].add(session.clone());
        }
        if reverse {
            parts.reverse();
        }
        let mut merged = Audit::new(4);
        for part in parts {
            // Parts come from other processes.
            let written = serde_json::to_string(&part).unwrap();
            merged.merge(serde_json::from_str(&written).unwrap());
        }
        prop_assert_eq!(merged, audited(&sessions));
    }

    #[test]
    fn totals_do_not_depend_on_order(runs in vec(run(), 0..7)) {
        let mut sessions: Vec<Session> =
            runs.iter().map(|run| Session::of(run, &Prices::new())).collect();
        let forward = audited(&sessions);
        sessions.reverse();
        prop_assert_eq!(forward, audited(&sessions));
    }

    #[test]
    fn models_share_the_session_usage(run in run()) {
        let session = Session::of(&run, &Prices::new());
        let all = sum(session.models.values().copied());
        prop_assert_eq!(all.turns, session.spent.turns);
        prop_assert_eq!(all.tokens(), session.spent.tokens());
        prop_assert_eq!(all.cached_tokens, session.spent.cached_tokens);
        prop_assert_eq!(all.unpriced_tokens, session.spent.unpriced_tokens);
        prop_assert_eq!(all.usd, session.spent.usd);
    }

    #[test]
    fn question_is_part_of_usage(run in run()) {
        let session = Session::of(&run, &Prices::new());
        prop_assert!(session.first_ms <= session.last_ms);
        let part = session.in_question();
        if session.ended.how.is_without_answer() {
            prop_assert_eq!(part, session.spent);
        }
        prop_assert!(part.turns <= session.spent.turns, "{:?}", session.loops);
    }
}

#[test]
fn recorded_totals_fill_missing_usage() {
    let totals = |input, output, turns| Totals {
        prompt_tokens: input,
        completion_tokens: output,
        turns,
        ..Totals::default()
    };
    let silent = || Step { text: "Done.".into(), ..Step::new(Role::Agent) };
    for (what, steps, totals, turns, tokens) in [
        ("only totals", vec![], totals(Some(70), Some(7), Some(9)), 9, 77),
        ("totals without turns", vec![], totals(Some(70), Some(7), None), 0, 77),
        ("half of the totals", vec![], totals(Some(70), None, Some(9)), 0, 0),
        ("steps and totals", vec![silent(), silent()], totals(Some(70), Some(7), Some(9)), 2, 77),
        ("steps only", vec![silent()], totals(None, None, None), 1, 0),
        ("huge totals", vec![silent()], totals(Some(u64::MAX), Some(7), None), 1, u64::MAX),
    ] {
        let run = Trajectory { steps, totals, ..Trajectory::new("s") };
        let session = Session::of(&run, &Prices::new());
        assert_eq!((session.spent.turns, session.spent.tokens()), (turns, tokens), "{what}");
    }
}

#[test]
fn times_of_session_span_steps() {
    for (times, first, last) in [
        (&["2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z"][..], Some(1), Some(2)),
        (&["2026-01-01T00:00:01Z", "soon", "2026-01-01T00:00:03.5Z"][..], Some(1), Some(3)),
        (&["2026-01-01T02:00:01+02:00"][..], Some(1), Some(1)),
        (&["then"][..], None, None),
        (&[][..], None, None),
    ] {
        let steps = times.iter().map(|at| Step { at: Some((*at).into()), ..Step::new(Role::User) });
        let run = Trajectory { steps: steps.collect(), ..Trajectory::new("s") };
        let session = Session::of(&run, &Prices::new());
        let start = 1_767_225_600_000;
        let seconds = |ms: Option<i64>| ms.map(|ms| (ms - start) / 1000);
        assert_eq!((seconds(session.first_ms), seconds(session.last_ms)), (first, last));
    }
}

#[test]
fn recorded_reason_decides_how_ended() {
    let said = || Step { text: "Paris.".into(), ..Step::new(Role::Agent) };
    let of = |steps: Vec<Step<'static>>, reason: Option<&'static str>| {
        let ending = reason.map(|reason| Ending { reason: reason.into(), ..Ending::default() });
        Session::of(&Trajectory { steps, ending, ..Trajectory::new("s") }, &Prices::new()).ended.how
    };
    assert_eq!(of(vec![said()], Some("final")), How::Answered);
    assert_eq!(of(vec![said()], None), How::Answered);
    for reason in ["max_steps", "timeout", "context_overflow", "provider_error", "harness_error"] {
        let how = of(vec![said()], Some(reason));
        assert!(how != How::Answered, "{reason}: {how:?}");
    }
    assert!(!of(vec![], None).is_without_answer(), "nothing was asked");
}
