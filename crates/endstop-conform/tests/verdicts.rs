//! Each check over evidence that is made by hand: one that passes, one that fails, and one whose situation did not arise.
#![allow(clippy::unwrap_used, clippy::pedantic, missing_docs, reason = "tests")]

use endstop_conform::checks::{Observed, find};
use endstop_conform::evidence::{
    Again, Call, Evidence, Exit, Kind, Record, Started, Stopped, Unspoken,
};
use endstop_conform::{CHECKS, Capability, Verdict, case, profile};
use serde_json::{Value, json};

fn call(kind: Kind, number: usize, at: f64, body: Value) -> Call {
    Call {
        at,
        format: "openai-chat".to_owned(),
        kind,
        number,
        streams: true,
        body,
        answer: String::new(),
        bytes: String::new(),
        invalid: None,
        unspoken: None,
    }
}

/// A program that has ended with this status after calls of the run, one in each second.
fn ended(status: i32, calls: usize) -> Evidence {
    let calls: Vec<Call> =
        (1..=calls).map(|n| call(Kind::Main, n, n as f64, json!({"messages": []}))).collect();
    let record = Record {
        number: 1,
        is_last: true,
        success: Some(status == 0),
        reason: Some("a_reason".to_owned()),
        has_usage: true,
        ..Record::default()
    };
    Evidence {
        exit: Some(Exit::Status(status)),
        seconds: calls.len() as f64 + 1.0,
        calls_of_first: calls.len(),
        calls,
        left: Some(Vec::new()),
        left_of_tool: Some(Vec::new()),
        record,
        patience: 60,
        ..Evidence::default()
    }
}

impl With for Evidence {}

/// Adds what a check asks for.
trait With: Into<Evidence> {
    fn bodies(self, names: &[&str]) -> Evidence {
        let mut evidence = self.into();
        let started = |name: &&str| Started { name: (*name).to_owned(), at: 1.0 };
        evidence.started.extend(names.iter().map(started));
        evidence.started_of_first = evidence.started.len();
        evidence
    }

    fn stopped(self, why: Stopped) -> Evidence {
        Evidence { exit: Some(Exit::Stopped(why)), record: Record::default(), ..self.into() }
    }

    fn acted(self, at: f64) -> Evidence {
        Evidence { acted: Some(at), ..self.into() }
    }

    fn sub(self, calls: usize) -> Evidence {
        let mut evidence = self.into();
        for n in 1..=calls {
            evidence.calls.insert(1, call(Kind::Sub, n, 1.5, json!({})));
        }
        evidence.calls_of_first = evidence.calls.len();
        evidence
    }

    /// Gives the second call of the run these results.
    fn results(self, results: &[&str]) -> Evidence {
        let mut evidence = self.into();
        let results: Vec<Value> = results
            .iter()
            .map(|text| json!({"role": "tool", "tool_call_id": "x", "content": text}))
            .collect();
        let second = evidence
            .calls
            .iter_mut()
            .find(|call| call.kind == Kind::Main && call.number == 2)
            .unwrap();
        second.body = json!({"messages": results});
        evidence
    }

    /// Adds a second start whose call has this history.
    fn again(self, text: &str, invalid: Option<&str>) -> Evidence {
        let mut evidence = self.into();
        let mut next = call(
            Kind::Main,
            2,
            20.0,
            json!({"messages": [{"role": "assistant", "content": text}]}),
        );
        next.invalid = invalid.map(str::to_owned);
        evidence.calls.push(next);
        let stderr = "its result is not known".to_owned();
        let again = Again { exit: Exit::Status(0), stdout: String::new(), stderr };
        Evidence { again: Some(again), ..evidence }
    }

    fn says(self, stdout: &str) -> Evidence {
        Evidence { stdout: stdout.to_owned(), ..self.into() }
    }

    fn costs(self, cost: f64) -> Evidence {
        let mut evidence = self.into();
        evidence.record.cost = Some(json!(cost));
        evidence
    }
}

fn judge(id: &str, case_name: &str, evidence: &Evidence) -> (Verdict, String) {
    let profile = if id.starts_with("P-") { "mini-acp" } else { "mini" };
    let (case, profile) = (case::find(case_name).unwrap(), profile::find(profile).unwrap());
    let finding = find(id).unwrap().judge(&Observed { case: &case, profile: &profile, evidence });
    (finding.verdict, finding.why)
}

/// Sets the reason of the verdict.
fn says(mut evidence: Evidence, reason: &str) -> Evidence {
    evidence.record.reason = Some(reason.to_owned());
    evidence
}

/// The rows: id, case, evidence that passes, evidence that does not.
fn rows() -> Vec<(&'static str, &'static str, Evidence, Evidence)> {
    let call_after = {
        let mut late = ended(130, 2).acted(1.2);
        late.seconds = 3.0;
        late
    };
    let mut slow = ended(1, 1).bodies(&["slow"]);
    slow.seconds = 12.0;
    let mut late_by_2 = ended(0, 2);
    late_by_2.calls[1].at = 1.3;
    let mut open = ended(0, 2).bodies(&["begins"]);
    open.started.push(Started { name: "settled".to_owned(), at: 9.0 });
    let mut two_records = ended(1, 3);
    two_records.record.number = 2;
    let mut disagrees = ended(0, 1);
    disagrees.record.success = Some(false);
    let wrapped = |status| {
        let mut wrapped = ended(status, 3);
        wrapped.calls.push(call(Kind::Other, 1, 4.0, json!({})));
        wrapped.calls_of_first = 4;
        wrapped
    };
    let rest = |status| ended(status, 1);
    let (twins, twin_results) = (["first", "second"], ["result-first", "result-second"]);
    vec![
        ("T-01", "cut-text", rest(1), rest(0)),
        ("T-02", "cut-call", ended(1, 3), ended(1, 3).bodies(&["cut"])),
        ("T-03", "cut-call-mislabelled", ended(1, 3), ended(1, 3).bodies(&["cut"])),
        ("T-04", "filtered", rest(1), rest(0)),
        ("T-05", "refusal", ended(1, 2), ended(1, 3)),
        ("T-06", "pause", ended(1, 4), ended(0, 4)),
        ("T-07", "unknown-finish", rest(1).says("ended by quantum_collapse"), rest(0)),
        ("T-08", "no-finish", rest(1), rest(0)),
        ("T-09", "call-announced", rest(1), rest(0)),
        ("T-10", "blank", ended(1, 5), ended(1, 6)),
        ("T-11", "reasoning-only", rest(1), rest(0)),
        ("T-12", "error-in-stream", rest(1), rest(0)),
        ("T-13", "call-in-text", ended(0, 2).bodies(&["text"]), rest(0)),
        ("S-01", "lost-text", ended(1, 6), ended(1, 7)),
        (
            "S-02",
            "lost-arguments",
            ended(0, 3).bodies(&["lost"]),
            ended(0, 3).bodies(&["lost", "lost"]),
        ),
        ("S-03", "no-content", rest(1), rest(1).stopped(Stopped::Time)),
        ("S-04", "pings", rest(1), rest(1).stopped(Stopped::Time)),
        ("S-05", "late-answer", rest(0), rest(1)),
        ("S-06", "endless-reasoning", rest(1), rest(1).stopped(Stopped::Time)),
        ("S-07", "open-after-finish", rest(0), ended(0, 2)),
        ("S-08", "junk-chunk", rest(1), rest(0)),
        ("C-01", "same-call", ended(1, 6), ended(1, 200).stopped(Stopped::Calls)),
        ("C-02", "two-calls", ended(1, 8), ended(0, 8)),
        ("C-03", "polls", ended(0, 21).bodies(&["poll"; 20]), ended(1, 9).bodies(&["poll"; 9])),
        (
            "C-04",
            "parallel-calls",
            ended(0, 2).results(&["went-wrong", "went-well"]),
            ended(0, 2).results(&["went-wrong"]),
        ),
        ("C-05", "bad-arguments", ended(1, 6), ended(1, 100).stopped(Stopped::Calls)),
        (
            "C-06",
            "hanging-tool",
            ended(1, 2).bodies(&["hangs"]).results(&["error: ended after 4 s"]),
            rest(1).bodies(&["hangs"]).stopped(Stopped::Time),
        ),
        (
            "C-07",
            "same-ids",
            ended(0, 2).bodies(&twins).results(&twin_results),
            ended(0, 2).bodies(&twins).results(&[twin_results[1], twin_results[0]]),
        ),
        ("L-01", "turn-cap", says(ended(1, 4), "max_turns"), ended(1, 5)),
        ("L-02", "turn-cap", ended(1, 4), ended(0, 4)),
        ("L-03", "budget", ended(1, 4).costs(0.36), ended(1, 5)),
        ("L-04", "budget-cached", ended(1, 2).costs(0.3966), ended(1, 4).costs(0.0066)),
        ("L-05", "budget-unreported", ended(1, 4), ended(1, 4).costs(0.0)),
        ("L-06", "time-limit", rest(1).bodies(&["slow"]), slow),
        ("L-07", "two-limits", ended(1, 3), two_records.clone()),
        ("L-08", "wrap-up", wrapped(1), wrapped(0)),
        ("L-09", "last-turn", ended(0, 3), ended(1, 3)),
        (
            "R-01",
            "rate-limited",
            {
                let mut good = ended(0, 2);
                good.calls[1].at = 3.2;
                good
            },
            late_by_2,
        ),
        ("R-02", "rate-limited-for-ever", ended(1, 20), ended(1, 21).stopped(Stopped::Calls)),
        ("R-03", "server-error", ended(1, 3), ended(1, 21).stopped(Stopped::Calls)),
        ("R-04", "quota", ended(1, 2), ended(1, 3)),
        ("R-05", "prompt-too-long", ended(1, 3), ended(1, 40).stopped(Stopped::Calls)),
        ("R-06", "server-error", rest(1), {
            let mut told = rest(0);
            told.record.answer = Some("failed (conform-4711)".to_owned());
            told
        }),
        ("R-07", "invalid-structure", ended(1, 3), ended(0, 3)),
        ("X-01", "interrupt-stream", rest(130).acted(1.5), call_after),
        (
            "X-02",
            "terminate-tool",
            rest(143).bodies(&["runs"]).acted(1.5),
            Evidence {
                left_of_tool: Some(vec!["4711 (sleep 3000)".to_owned()]),
                ..rest(143).bodies(&["runs"]).acted(1.5)
            },
        ),
        (
            "X-03",
            "kill-tool",
            rest(137).bodies(&["runs"]).acted(1.5),
            Evidence {
                left_of_tool: Some(vec!["4711 (sleep 3000)".to_owned()]),
                ..rest(137).bodies(&["runs"]).acted(1.5)
            },
        ),
        ("X-04", "interrupt-stream", rest(130).acted(0.7), rest(130).acted(0.7).bodies(&["late"])),
        (
            "X-05",
            "interrupt-tool",
            rest(130).bodies(&["runs"]).again("I run it.", None),
            rest(130)
                .bodies(&["runs"])
                .again("I run it.", Some("message 2: the call `a` has no result")),
        ),
        ("X-06", "stop-hook", ended(1, 4), ended(1, 60).stopped(Stopped::Calls)),
        ("X-07", "interrupt-pause", rest(130).acted(1.5), {
            let mut waited = ended(130, 1).acted(1.5);
            waited.seconds = 31.0;
            waited
        }),
        (
            "N-01",
            "sub-agent-cap",
            ended(0, 2).sub(10).results(&["It did not finish: its limit are 10 turns."]),
            ended(0, 2).sub(10).results(&["There are 7 parts."]),
        ),
        ("N-02", "silent-sub-agent", ended(0, 2).sub(1), ended(0, 1).sub(1).stopped(Stopped::Time)),
        ("N-03", "background", ended(0, 2).bodies(&["begins", "settled"]), open),
        ("N-04", "endless-sub-agents", ended(1, 3).sub(3), ended(1, 30).sub(30)),
        ("A-01", "permission", ended(1, 2), ended(0, 2)),
        (
            "D-01",
            "kill-tool",
            rest(137).bodies(&["runs"]).again("I run it.", None),
            rest(137).bodies(&["runs", "runs"]).again("I run it.", None),
        ),
        ("P-01", "turn-cap", says(ended(1, 4), "max_turn_requests"), says(ended(1, 4), "refusal")),
        (
            "P-02",
            "interrupt-stream",
            says(rest(1).acted(1.5), "cancelled"),
            says(rest(1).acted(1.5), "max_tokens"),
        ),
        ("O-01", "cut-text", rest(1), two_records),
        ("O-02", "cut-text", rest(1), disagrees),
    ]
}

#[test]
fn good_evidence_passes_and_bad_evidence_does_not() {
    for (id, case, good, bad) in rows() {
        let (verdict, why) = judge(id, case, &good);
        assert_eq!(verdict, Verdict::Pass, "{id}: {why}");
        let expected = if find(id).unwrap().must { Verdict::Fail } else { Verdict::Warn };
        let (verdict, why) = judge(id, case, &bad);
        assert_eq!(verdict, expected, "{id}: {why}");
    }
}

#[test]
fn each_check_has_a_row() {
    let rows = rows();
    let missing: Vec<&str> = CHECKS
        .iter()
        .map(|check| check.id)
        .filter(|id| !rows.iter().any(|(known, ..)| known == id))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// A check does not pass because its situation did not arise.
#[test]
fn nothing_passes_without_its_situation() {
    let quiet = Evidence { exit: Some(Exit::Status(1)), ..Evidence::default() };
    let impatient = ended(1, 1).stopped(Stopped::Patience);
    for (id, case, ..) in rows() {
        assert_eq!(judge(id, case, &quiet).0, Verdict::NotReached, "{id}");
        let (verdict, why) = judge(id, case, &impatient);
        // A program that does not end after a signal has failed.
        assert!(verdict == Verdict::NotReached, "{id}: {verdict}, {why}");
    }
}

#[test]
fn missing_capability_is_not_applicable() {
    let (case, generic) = (case::find("turn-cap").unwrap(), profile::find("generic").unwrap());
    let evidence = ended(1, 4);
    let observed = Observed { case: &case, profile: &generic, evidence: &evidence };
    let finding = find("L-01").unwrap().judge(&observed);
    assert_eq!(finding.verdict, Verdict::NotApplicable);
    assert!(finding.why.contains("turn_cap"), "{}", finding.why);
}

/// A response that is waited for again was given up; the sentence is about the response.
#[test]
fn later_call_shows_response_given_up() {
    let again = |times: &[f64]| {
        let mut evidence = ended(1, times.len()).stopped(Stopped::Patience);
        evidence.hung_up = vec![45.2];
        for (call, at) in evidence.calls.iter_mut().zip(times) {
            call.at = *at;
        }
        evidence
    };
    for (id, case) in [("S-03", "no-content"), ("S-04", "pings"), ("S-06", "endless-reasoning")] {
        let (verdict, why) = judge(id, case, &again(&[0.3, 45.3]));
        assert_eq!(
            (verdict, why.as_str()),
            (Verdict::Pass, "given up, and called again after 45 s")
        );
        // Two calls of one moment are not an attempt and the next one.
        assert_eq!(judge(id, case, &again(&[0.3, 0.4])).0, Verdict::NotReached);
        // A call next to one that is still waited for shows nothing.
        let hedged = Evidence { hung_up: Vec::new(), ..again(&[0.3, 45.3]) };
        assert_eq!(judge(id, case, &hedged).0, Verdict::NotReached);
    }
}

/// A run that the suite ends because of its many calls has no answer in which the text of the error could stand.
#[test]
fn unended_run_has_no_error_text() {
    let evidence = ended(1, 3).stopped(Stopped::Calls);
    assert_eq!(judge("R-06", "unauthorised", &evidence).0, Verdict::NotReached);
    assert_eq!(judge("R-04", "unauthorised", &evidence).0, Verdict::Fail);
}

/// A title that is asked for next to the first call is not its repetition.
#[test]
fn word_of_provider_is_kept_in_record_file() {
    let mut evidence = ended(1, 1);
    assert_eq!(judge("T-07", "unknown-finish", &evidence).0, Verdict::Warn);
    evidence.record.text = r#"{"signal":{"original_value":"quantum_collapse"}}"#.to_owned();
    assert_eq!(judge("T-07", "unknown-finish", &evidence).0, Verdict::Pass);
}

#[test]
fn title_is_not_repetition_of_refused_call() {
    let mut evidence = ended(0, 2);
    evidence.calls[1].at = 3.2;
    evidence.calls.insert(0, call(Kind::Other, 1, 0.9, json!({})));
    evidence.calls_of_first = 3;
    assert_eq!(judge("R-01", "rate-limited", &evidence).0, Verdict::Pass);
}

/// Sub-agents of one moment may each have a call on its way when the budget is reached.
#[test]
fn parallel_calls_of_sub_agents_are_on_their_way() {
    let mut evidence = ended(1, 3).sub(5);
    for (at, call) in evidence.calls.iter_mut().enumerate() {
        call.at = if at < 5 { 1.0 } else { 1.3 };
    }
    assert_eq!(judge("N-04", "endless-sub-agents", &evidence).0, Verdict::Pass);
    evidence.calls[7].at = 2.5;
    assert_eq!(judge("N-04", "endless-sub-agents", &evidence).0, Verdict::Fail);
}

/// A list of words decides only if the profile has it.
#[test]
fn words_of_profile_decide_and_others_warn() {
    let case = case::find("sub-agent-cap").unwrap();
    let of = |profile: &str, result: &str| {
        let mut profile = profile::find(profile).unwrap();
        profile.capabilities.extend([Capability::SubAgents, Capability::SubAgentCap]);
        let evidence = ended(0, 2).sub(10).results(&[result]);
        let observed = Observed { case: &case, profile: &profile, evidence: &evidence };
        find("N-01").unwrap().judge(&observed).verdict
    };
    let more = "Sorry, need more steps to process this request.";
    assert_eq!(of("generic", more), Verdict::Pass);
    assert_eq!(of("generic", "Success: counted all parts, at a maximum speed."), Verdict::Warn);
    assert_eq!(of("generic", "No errors. The number of parts is 7."), Verdict::Warn);
    assert_eq!(
        [of("mini", more), of("mini", "It did not finish.")],
        [Verdict::Fail, Verdict::Pass]
    );
}

/// A run that ends as failed at once waits for nothing.
#[test]
fn run_without_pause_has_nothing_to_interrupt() {
    let of = |status| judge("X-07", "interrupt-pause", &ended(status, 1)).0;
    assert_eq!([of(1), of(0)], [Verdict::Pass, Verdict::NotReached]);
}

/// A call that arrived before the signal says nothing about one that arrives after it.
#[test]
fn call_before_signal_is_not_late() {
    let evidence = ended(130, 2).acted(1.5).bodies(&["late"]);
    assert_eq!(judge("X-04", "interrupt-stream", &evidence).0, Verdict::NotReached);
}

/// A run that a rule ends among the polls is not a success, whatever it says; one whose tool refuses them has no polls.
#[test]
fn success_needs_all_polls() {
    let of = |polls| judge("C-03", "polls", &ended(0, 7).bodies(&vec!["poll"; polls])).0;
    assert_eq!([of(4), of(0)], [Verdict::Warn, Verdict::NotReached]);
}

/// A response that is asked for again in place of running its calls loses no result.
#[test]
fn calls_that_do_not_run_lose_no_result() {
    assert_eq!(judge("C-07", "same-ids", &ended(0, 3)).0, Verdict::NotReached);
}

#[test]
fn format_without_response_is_not_applicable() {
    let unspoken = |is_of_format| {
        let mut evidence = ended(0, 1);
        evidence.calls[0].unspoken = Some(Unspoken { why: "a reason".to_owned(), is_of_format });
        judge("T-09", "call-announced", &evidence)
    };
    assert_eq!(unspoken(true), (Verdict::NotApplicable, "a reason".to_owned()));
    assert_eq!(unspoken(false), (Verdict::NotReached, "a reason".to_owned()));
}
