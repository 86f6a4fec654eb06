//! The JSON form of an outcome: its text, its round trip, older and invalid JSON.

use endstop_core::*;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::time::Duration;

fn short() -> impl Strategy<Value = String> {
    "[a-z \"\\\\é\u{0}\n]{0,12}"
}

fn text() -> impl Strategy<Value = Option<String>> {
    of(short())
}

/// Amounts up to a million dollars. A number of JSON does not have every nano-dollar above that.
fn money() -> impl Strategy<Value = NanoUsd> {
    prop_oneof![Just(0), 0..10_000_000_000u64, 0..1_000_000_000_000_000u64].prop_map(NanoUsd)
}

/// Values with a JSON form of their own: `null` means that there is no value.
fn value() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        short().prop_map(|text| Some(json!(text))),
        any::<i64>().prop_map(|number| Some(json!({"number": number, "list": [null, true]}))),
    ]
}

fn termination() -> impl Strategy<Value = Termination> {
    select(Termination::all())
}

fn decided_by() -> impl Strategy<Value = DecidedBy> {
    let layer = select(vec![
        Layer::Turn,
        Layer::Policy,
        Layer::Tool,
        Layer::Hook,
        Layer::Limit,
        Layer::Provider,
        Layer::Caller,
        Layer::Fault,
    ]);
    let known = select(DECISIONS.map(|(_, name)| name.to_owned()).to_vec());
    let class = select(&ErrorClass::ALL).prop_map(|class| class.as_str().to_owned());
    (layer, prop_oneof![known, class, short()], short()).prop_map(|(layer, name, evidence)| {
        DecidedBy { layer, decision: Decision::of(layer, name), evidence }
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let part = prop_oneof![
        short().prop_map(|text| Part::Text { text }),
        (short(), short()).prop_map(|(api, json)| Part::Opaque { api, json }),
        short().prop_map(|call_id| Part::ToolResult(ToolResult {
            name: "shell".to_owned(),
            status: ToolStatus::Ok,
            content: call_id.clone(),
            call_id,
            attachments: Vec::new(),
            started: true,
            pinned: false,
        })),
    ];
    let message = (any::<u64>(), prop::collection::vec(part, 0..3), any::<bool>()).prop_map(
        |(id, parts, pinned)| Message { id: MessageId(id), role: Role::Assistant, parts, pinned },
    );
    prop::collection::vec(message, 0..3)
}

fn signal() -> impl Strategy<Value = TerminationSignal> {
    (short(), short(), text()).prop_map(|(field, raw, message)| {
        let signal = TerminationSignal::new(SignalReason::Unknown, Confidence::Low);
        TerminationSignal { message, ..signal.from_field(field, raw) }
    })
}

fn usage() -> impl Strategy<Value = Usage> {
    (of(any::<u64>()), of(any::<u64>()), any::<bool>()).prop_map(|(input, output, estimated)| {
        Usage { input_tokens: input, output_tokens: output, estimated, ..Usage::default() }
    })
}

fn compaction() -> impl Strategy<Value = CompactionAttempt> {
    (any::<u32>(), any::<bool>(), any::<u64>(), text()).prop_map(|(turn, forced, bytes, failed)| {
        let size = ConversationSize { messages: 3, bytes, tokens: 7 };
        let after = failed.is_none().then_some(size);
        CompactionAttempt { turn, forced, strategy: "drop".into(), before: size, after, failed }
    })
}

fn hit() -> impl Strategy<Value = RuleHit> {
    (select(WatchMode::ALL.to_vec()), any::<u32>(), short()).prop_map(|(mode, turn, evidence)| {
        RuleHit { rule: "repeat_call(3)".into(), mode, turn, evidence }
    })
}

fn snapshot() -> impl Strategy<Value = NoProgressSnapshot> {
    (short(), any::<u32>()).prop_map(|(text, unproductive_turns)| {
        let (name, arguments, result) = ("shell".to_owned(), "{}".to_owned(), text.clone());
        let calls = vec![RepeatedCall { name, arguments, result }];
        NoProgressSnapshot { unproductive_turns, calls, text }
    })
}

fn verify_round() -> impl Strategy<Value = VerifyRound> {
    (any::<u32>(), any::<bool>(), short()).prop_map(|(turn, passed, output)| VerifyRound {
        turn,
        passed,
        output,
    })
}

fn model_use() -> impl Strategy<Value = ModelUse> {
    (text(), text(), any::<u32>(), usage(), money(), any::<bool>()).prop_map(
        |(provider, model, calls, usage, cost, cost_unknown)| ModelUse {
            fallback: calls % 3,
            provider,
            model,
            calls,
            usage,
            cost,
            cost_unknown,
        },
    )
}

fn branch_point() -> impl Strategy<Value = BranchPoint> {
    (any::<(u32, bool, u64, u64)>(), money()).prop_map(|(numbers, cost)| {
        let (turn, cost_unknown, tokens, left_out) = numbers;
        BranchPoint { run_id: "k3v9".to_owned(), turn, cost, cost_unknown, tokens, left_out }
    })
}

fn would_fit() -> impl Strategy<Value = WouldFit> {
    (of(0..1_000_000u32), of(any::<u64>())).prop_map(|(cents, tokens)| WouldFit {
        max_budget: cents.map(|cents| f64::from(cents) / 100.0).map(NanoUsd::from_usd),
        max_tokens: tokens,
        shared_budget: cents.map(|cents| NanoUsd(u64::from(cents) * 1_000)),
        shared_tokens: tokens,
        max_output_tokens: None,
    })
}

fn work() -> impl Strategy<Value = StoppedWork> {
    (1..9u32, "[a-z]{0,4}", "[a-z]{0,4}").prop_map(|(n, call_id, name)| StoppedWork {
        handle: format!("h{n}"),
        call_id,
        name,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let ending = (
        (termination(), decided_by(), prop::collection::vec(termination(), 0..3)),
        (text(), value(), text(), value()),
        (any::<[u32; 3]>(), prop::collection::vec(compaction(), 0..2)),
        (prop::collection::vec(hit(), 0..2), usage()),
        (money(), of(money()), any::<bool>(), of(any::<u64>()), money()),
        (0..1u64 << 50, of(0..1u64 << 50)),
    );
    let rest = (
        (of(snapshot()), text(), of(would_fit()), text(), of(signal())),
        (text(), text(), text(), of(any::<bool>()), messages()),
        (prop::collection::vec(verify_round(), 0..3), text(), of(branch_point())),
        (prop::collection::vec(model_use(), 0..3), prop::collection::vec(work(), 0..3)),
    );
    (ending, rest).prop_map(|(ending, rest)| {
        let (decided, answers, (counts, compactions), (fired, usage), money, times) = ending;
        let (termination, decided_by, also) = decided;
        let (last_text, deliverable, summary, structured) = answers;
        let [turns, model_calls, tool_calls] = counts;
        let (cost, cost_upper, cost_unknown, tokens_upper, overrun) = money;
        let (no_progress_snapshot, error_diagnostic, would_fit, halted_reason, signal) = rest.0;
        let (model, provider, run_id, verified, messages) = rest.1;
        let cache = CacheUse::of(&usage, None);
        let (verify_rounds, hand_over, branched_from) = rest.2;
        let (models, background) = rest.3;
        Outcome {
            termination,
            decided_by,
            also,
            last_text,
            deliverable,
            summary,
            structured,
            turns,
            model_calls,
            tool_calls,
            compactions,
            fired,
            usage,
            cache,
            cost,
            cost_upper,
            cost_unknown,
            tokens_upper,
            overrun,
            duration: Duration::from_micros(times.0),
            suspended: Duration::from_micros(times.0 / 3),
            retry_after: times.1.map(Duration::from_millis),
            no_progress_snapshot,
            error_diagnostic,
            would_fit,
            halted_reason,
            signal,
            model,
            provider,
            models,
            run_id,
            verified,
            verify_rounds,
            hand_over,
            branched_from,
            background,
            messages,
            epoch: 0,
        }
    })
}

proptest! {
    #[test]
    fn outcome_equals_its_parsed_json(outcome in outcome()) {
        let text = serde_json::to_string(&outcome).unwrap();
        let parsed: Outcome = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&parsed, &outcome);
        // As `explain` reads it: from a value.
        let value: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::from_value::<Outcome>(value).unwrap(), outcome);
    }
}

/// The decisions of the kernel, by layer and name. The names are a part of the JSON.
const DECISIONS: [(Layer, &str); 33] = [
    (Layer::Turn, "natural_completion"),
    (Layer::Turn, "token_limit_reached"),
    (Layer::Turn, "content_filtered"),
    (Layer::Turn, "unknown_finish"),
    (Layer::Turn, "tool_calls"),
    (Layer::Turn, "paused"),
    (Layer::Turn, "thinking_starved"),
    (Layer::Tool, "finish"),
    (Layer::Hook, "prompt"),
    (Layer::Hook, "pre_iteration"),
    (Layer::Hook, "chat_params"),
    (Layer::Hook, "pre_tool"),
    (Layer::Hook, "approval"),
    (Layer::Hook, "reply"),
    (Layer::Hook, "stop"),
    (Layer::Limit, "max_turns"),
    (Layer::Limit, "max_consecutive_mistakes"),
    (Layer::Limit, "max_budget_usd"),
    (Layer::Limit, "max_tokens"),
    (Layer::Limit, "shared_budget"),
    (Layer::Limit, "timeout"),
    (Layer::Limit, "max_unproductive_turns"),
    (Layer::Limit, "max_empty_turns"),
    (Layer::Limit, "thinking_timeout"),
    (Layer::Limit, "max_structured_output_retries"),
    (Layer::Limit, "compaction"),
    (Layer::Limit, "unknown_price"),
    (Layer::Caller, "cancel"),
    (Layer::Caller, "terminate"),
    (Layer::Caller, "closed"),
    (Layer::Caller, "no_call"),
    (Layer::Caller, "refused"),
    (Layer::Fault, "driver"),
];

#[test]
fn kernel_decisions_keep_their_names() {
    for (layer, name) in DECISIONS {
        let decision = Decision::of(layer, name);
        assert!(!matches!(decision, Decision::Custom(_)), "{layer} {name}");
        assert_eq!(decision.as_str(), name);
        // In another layer the name is a custom one.
        assert_eq!(Decision::of(Layer::Policy, name), Decision::Custom(name.to_owned()));
    }
    for class in ErrorClass::ALL {
        let decision = Decision::of(Layer::Provider, class.as_str());
        assert_eq!(decision, Decision::CallFailed(class));
        assert_eq!(decision.as_str(), class.as_str());
    }
    assert_eq!(Decision::of(Layer::Provider, "busy"), Decision::Custom("busy".to_owned()));
}

/// The outcome of a run whose second call did not fit under its cost ceiling.
fn over_budget() -> (Outcome, &'static str) {
    let outcome = Outcome {
        termination: Termination::ErrorMaxBudgetUsd,
        decided_by: DecidedBy {
            layer: Layer::Limit,
            decision: Decision::Limit(Limit::MaxBudgetUsd),
            evidence: "the next call does not fit".to_owned(),
        },
        also: vec![Termination::ErrorMaxTurns],
        last_text: Some("I look.".to_owned()),
        deliverable: None,
        summary: None,
        structured: None,
        turns: 1,
        model_calls: 2,
        tool_calls: 1,
        compactions: vec![CompactionAttempt {
            turn: 1,
            forced: false,
            strategy: "elide".to_owned(),
            before: ConversationSize { messages: 9, bytes: 4_000, tokens: 1_000 },
            after: None,
            failed: Some("not_smaller".to_owned()),
        }],
        fired: vec![RuleHit {
            rule: "repeat_call(3)".to_owned(),
            mode: WatchMode::Warn,
            turn: 1,
            evidence: "repeat_call(3) at step 3".to_owned(),
        }],
        usage: Usage { input_tokens: Some(1_000), output_tokens: Some(100), ..Usage::default() },
        cache: None,
        cost: NanoUsd(4_500_000),
        cost_upper: Some(NanoUsd(5_250_001)),
        cost_unknown: true,
        tokens_upper: Some(1_350),
        overrun: NanoUsd(1),
        duration: Duration::from_nanos(1_234_567_890),
        suspended: Duration::ZERO,
        retry_after: Some(Duration::from_micros(2_500_999)),
        no_progress_snapshot: Some(NoProgressSnapshot {
            unproductive_turns: 3,
            calls: vec![RepeatedCall {
                name: "shell".to_owned(),
                arguments: "{}".to_owned(),
                result: "ok".to_owned(),
            }],
            text: String::new(),
        }),
        error_diagnostic: Some("a diagnostic".to_owned()),
        would_fit: Some(WouldFit {
            max_budget: Some(NanoUsd::from_usd(0.0093)),
            max_output_tokens: Some(300),
            ..WouldFit::default()
        }),
        halted_reason: None,
        signal: Some(
            TerminationSignal::new(SignalReason::ToolUse, Confidence::High)
                .from_field("finish_reason", "tool_calls"),
        ),
        model: Some("m-1".to_owned()),
        provider: Some("p".to_owned()),
        models: Vec::new(),
        run_id: Some("r1".to_owned()),
        verified: Some(false),
        verify_rounds: Vec::new(),
        hand_over: None,
        branched_from: None,
        background: Vec::new(),
        messages: vec![Message::text(MessageId(1), Role::User, "Look.")],
        epoch: 2,
    };
    let json = concat!(
        r#"{"type":"outcome","termination":"error_max_budget_usd","category":"capacity","#,
        r#""decided_by":{"layer":"limit","name":"max_budget_usd","evidence":"the next call does not fit"},"#,
        r#""also":["error_max_turns"],"last_text":"I look.","deliverable":null,"summary":null,"#,
        r#""structured":null,"turns":1,"model_calls":2,"tool_calls":1,"compactions":[{"turn":1,"#,
        r#""forced":false,"strategy":"elide","before":{"messages":9,"bytes":4000,"tokens":1000},"#,
        r#""after":null,"failed":"not_smaller"}],"fired":[{"rule":"repeat_call(3)","mode":"warn","#,
        r#""turn":1,"evidence":"repeat_call(3) at step 3"}],"usage":{"input_tokens":1000,"#,
        r#""output_tokens":100,"cached_input_tokens":null,"cache_write_tokens":null,"#,
        r#""reasoning_tokens":null,"cache_apart":false,"reasoning_apart":false,"estimated":false},"#,
        r#""cost_usd":0.0045,"cost_upper_usd":0.005250001,"cost_unknown":true,"tokens_upper":1350,"#,
        r#""overrun_usd":1e-9,"duration_ms":1234.567,"retry_after_ms":2500,"no_progress_snapshot":"#,
        r#"{"unproductive_turns":3,"calls":[{"name":"shell","arguments":"{}","result":"ok"}],"#,
        r#""text":""},"error_diagnostic":"a diagnostic","would_fit":{"max_budget_usd":0.0093,"#,
        r#""max_tokens":null,"max_output_tokens":300},"halted_reason":null,"signal":{"#,
        r#""should_terminate":false,"reason":"tool_use","confidence":"high","provider_specific":{"#,
        r#""original_field":"finish_reason","original_value":"tool_calls","metadata":{}},"#,
        r#""message":null},"model":"m-1","provider":"p","run_id":"r1","verified":false,"#,
        r#""messages":[{"id":1,"role":"user","parts":[{"type":"text","text":"Look."}]}]}"#,
    );
    (outcome, json)
}

/// The outcome of a run whose policy found the answer.
fn submitted() -> (Outcome, &'static str) {
    let (over, _) = over_budget();
    let outcome = Outcome {
        termination: Termination::Submitted,
        decided_by: DecidedBy {
            layer: Layer::Policy,
            decision: Decision::Custom("final_pattern".to_owned()),
            evidence: "`FINAL(…)`".to_owned(),
        },
        also: Vec::new(),
        last_text: Some("FINAL(42)".to_owned()),
        deliverable: Some(json!({"b": 1, "a": [1.5, null]})),
        summary: Some("\"done\"\n".to_owned()),
        structured: Some(json!("x")),
        compactions: Vec::new(),
        fired: Vec::new(),
        usage: Usage::default(),
        cache: Some(CacheUse {
            read_tokens: 9,
            write_tokens: 4,
            saved: Some(NanoUsdChange(-1_500_000)),
        }),
        cost: NanoUsd(1_000_000_000),
        cost_upper: None,
        cost_unknown: false,
        tokens_upper: None,
        overrun: NanoUsd::ZERO,
        duration: Duration::from_secs(3),
        suspended: Duration::ZERO,
        retry_after: None,
        no_progress_snapshot: None,
        error_diagnostic: None,
        would_fit: None,
        signal: None,
        model: None,
        provider: None,
        run_id: None,
        verified: None,
        messages: Vec::new(),
        ..over
    };
    let json = concat!(
        r#"{"type":"outcome","termination":"submitted","category":"success","decided_by":{"#,
        r#""layer":"policy","name":"final_pattern","evidence":"`FINAL(…)`"},"also":[],"#,
        r#""last_text":"FINAL(42)","deliverable":{"b":1,"a":[1.5,null]},"summary":"\"done\"\n","#,
        r#""structured":"x","turns":1,"model_calls":2,"tool_calls":1,"compactions":[],"fired":[],"#,
        r#""usage":{"input_tokens":null,"output_tokens":null,"cached_input_tokens":null,"#,
        r#""cache_write_tokens":null,"reasoning_tokens":null,"cache_apart":false,"#,
        r#""reasoning_apart":false,"estimated":false},"cache":{"read_tokens":9,"write_tokens":4,"#,
        r#""saved_usd":-0.0015},"cost_usd":1.0,"cost_upper_usd":null,"#,
        r#""cost_unknown":false,"tokens_upper":null,"overrun_usd":0.0,"duration_ms":3000.0,"#,
        r#""retry_after_ms":null,"no_progress_snapshot":null,"error_diagnostic":null,"#,
        r#""would_fit":null,"halted_reason":null,"signal":null,"model":null,"provider":null,"#,
        r#""run_id":null,"verified":null,"messages":[]}"#,
    );
    (outcome, json)
}

#[test]
fn outcome_json_has_fixed_form() {
    for (outcome, json) in [over_budget(), submitted()] {
        assert_eq!(serde_json::to_string(&outcome).unwrap(), json);
        // JSON contains no epoch, and no more than microseconds and milliseconds.
        let micros = Duration::from_micros(outcome.duration.as_micros() as u64);
        let millis = |time: Duration| Duration::from_millis(time.as_millis() as u64);
        let retry_after = outcome.retry_after.map(millis);
        let read: Outcome = serde_json::from_str(json).unwrap();
        assert_eq!(read, Outcome { epoch: 0, duration: micros, retry_after, ..outcome });
    }
}

#[test]
fn largest_amount_survives_json() {
    let (outcome, _) = over_budget();
    let outcome = Outcome { cost: NanoUsd(u64::MAX), ..outcome };
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap().cost, NanoUsd(u64::MAX));
}

#[test]
fn older_outcomes_can_be_read() {
    // The first version's form: no cost bound, no compactions and no rule hits. `at_ms` is from a
    // file of events.
    let early = concat!(
        r#"{"type":"outcome","termination":"error_max_turns","category":"capacity","decided_by":{"#,
        r#""layer":"limit","name":"max_turns","evidence":"2 of 2 turns"},"also":[],"last_text":null,"#,
        r#""deliverable":null,"summary":null,"structured":null,"turns":2,"model_calls":2,"#,
        r#""tool_calls":2,"usage":{"input_tokens":20,"output_tokens":10},"cost_usd":0.25,"#,
        r#""cost_unknown":false,"overrun_usd":0.0,"duration_ms":12.5,"retry_after_ms":null,"#,
        r#""no_progress_snapshot":null,"error_diagnostic":null,"halted_reason":null,"signal":{"#,
        r#""should_terminate":false,"reason":"tool_use","confidence":"high","provider_specific":{"#,
        r#""original_field":"finish_reason","original_value":"tool_calls"}},"model":"m","#,
        r#""provider":"p","run_id":null,"verified":null,"messages":[{"id":1,"role":"user","parts":"#,
        r#"[{"type":"text","text":"Go."}]},{"id":3,"role":"tool","parts":[{"type":"tool_result","#,
        r#""call_id":"c","name":"shell","status":"ok","content":"1","started":true}]}],"#,
        r#""at_ms":12.5}"#,
    );
    let read: Outcome = serde_json::from_str(early).unwrap();
    assert_eq!(read.termination, Termination::ErrorMaxTurns);
    assert_eq!(read.decided_by.decision, Decision::Limit(Limit::MaxTurns));
    assert_eq!((read.turns, read.cost, read.cost_unknown), (2, NanoUsd(250_000_000), false));
    assert_eq!((read.cost_upper, read.usage.total_tokens()), (None, 30));
    assert_eq!(read.duration, Duration::from_micros(12_500));
    assert_eq!(read.signal.unwrap().reason, SignalReason::ToolUse);
    assert_eq!(read.messages[1].tool_results().count(), 1);

    let least = r#"{"termination":"stop","decided_by":{}}"#;
    let read: Outcome = serde_json::from_str(least).unwrap();
    assert_eq!(read.termination, Termination::Stop);
    assert_eq!(read.decided_by.decision, Decision::Custom(String::new()));
    assert!(read.cost_unknown, "a missing cost is not a cost of zero");

    let unknown = early.replace(r#""cost_usd":0.25"#, r#""cost_usd":null"#);
    assert_ne!(unknown, early);
    let read: Outcome = serde_json::from_str(&unknown).unwrap();
    assert_eq!((read.known_cost(), read.cost_unknown), (None, true));
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!((&written["cost_usd"], &written["cost_unknown"]), (&Value::Null, &json!(true)));
}

#[test]
fn invalid_outcome_json_names_the_field() {
    for (field, wrong, says) in [
        ("termination", json!("error_of_2030"), "unknown variant `error_of_2030`"),
        ("termination", json!(5), "string or map"),
        ("decided_by", json!({"layer": "moon"}), "unknown variant `moon`"),
        ("decided_by", json!("limit"), "invalid type: string \"limit\""),
        ("also", json!(["error_of_2030"]), "unknown variant `error_of_2030`"),
        ("last_text", json!(5), "invalid type: integer `5`, expected a string"),
        ("turns", json!(-1), "invalid value: integer `-1`, expected u32"),
        ("turns", json!(1.5), "expected u32"),
        ("cost_usd", json!(-0.5), "expected a non-negative amount of dollars"),
        ("cost_usd", json!(1e300), "expected a non-negative amount of dollars"),
        ("cost_usd", json!("0.5"), "invalid type: string \"0.5\", expected f64"),
        ("cost_upper_usd", json!(-1), "expected a non-negative amount of dollars"),
        ("overrun_usd", json!("1"), "invalid type: string \"1\", expected f64"),
        ("cost_unknown", json!("no"), "expected a boolean"),
        ("duration_ms", json!(-1), "expected a non-negative number of milliseconds"),
        ("duration_ms", json!(1e300), "expected a non-negative number of milliseconds"),
        ("retry_after_ms", json!(-1), "expected u64"),
        ("usage", json!("many"), "invalid type: string"),
        ("fired", json!([{"rule": "r"}]), "missing field `mode`"),
        ("signal", json!({}), "missing field"),
        ("messages", json!([{"id": 1, "role": "moon", "parts": []}]), "unknown variant `moon`"),
        ("verified", json!("yes"), "expected a boolean"),
    ] {
        let (_, text) = submitted();
        let mut value: Value = serde_json::from_str(text).unwrap();
        value[field] = wrong.clone();
        for error in [
            serde_json::from_str::<Outcome>(&value.to_string()).unwrap_err().to_string(),
            serde_json::from_value::<Outcome>(value).unwrap_err().to_string(),
        ] {
            let names = error.starts_with(&format!("`{field}`: "));
            assert!(names && error.contains(says), "{field} = {wrong}: {error}");
        }
    }
    for (text, says) in [
        ("{}", "missing field"),
        (r#"{"termination":"stop"}"#, "missing field `decided_by`"),
        (r#"{"decided_by":{}}"#, "missing field `termination`"),
        ("[]", "invalid type: sequence"),
        ("null", "invalid type: null"),
        (
            r#"{"termination":"stop","decided_by":{},"turns":1,"turns":2}"#,
            "duplicate field `turns`",
        ),
    ] {
        let error = serde_json::from_str::<Outcome>(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}
