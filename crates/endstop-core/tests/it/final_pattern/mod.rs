//! `final_pattern`: streamed and complete text give the same answer, the scanner agrees with a
//! simple implementation of its rules, and its work is linear.

mod plain;

use crate::vectors::{assert_differences, cases, id, random_cases};
use endstop_core::policy::FinalPattern;
use endstop_core::policy::final_pattern::{Pick, Scanner, ScannerOptions};
use endstop_core::{StepContext, StepResult, TerminationPolicy, Verdict};
use proptest::prelude::*;
use serde_json::{Value, json};

fn policy(config: &Value) -> FinalPattern {
    FinalPattern::from_config(config).unwrap()
}

fn message(text: &str) -> StepResult {
    StepResult {
        action_type: "message".into(),
        success: true,
        output: Some(text.into()),
        ..StepResult::default()
    }
}

fn context() -> StepContext {
    let mut context = StepContext::default();
    for (name, value) in [("a", json!(1)), ("x_1", json!("text")), ("r", json!({"k": [1]}))] {
        context.variables.insert(name.into(), value);
    }
    context
}

fn answer_of(config: &Value, text: &str) -> Option<String> {
    match policy(config).should_terminate(&message(text), &context()) {
        Verdict::Stop(stop) => Some(stop.answer.unwrap()),
        _ => None,
    }
}

fn answer(text: &str) -> Option<String> {
    answer_of(&json!({}), text)
}

#[test]
fn answer_matches_each_rule() {
    for (text, expected) in [
        // Position of the name.
        ("obj.FINAL('x')", Some("x")),
        ("éFINAL('x')", None),
        ("FINAL FINAL('x')", Some("x")),
        ("FINAL\n('x')", None),
        ("Final('x')", None),
        ("FINAL\u{a0}('x')", None),
        // Literals.
        ("so FINAL('a' 'b') it is", None),
        ("FINAL('a', 'b')", Some("'a', 'b'")),
        ("say FINAL(\"\"\"a \\\"\"\" b\"\"\") now", Some("a \"\"\" b")),
        ("say FINAL('''''') now", None),
        ("say FINAL('a\\nb\\\\') now", Some("a\\nb\\")),
        ("say FINAL(  ' a '\n) now", Some("a")),
        // The first quote is a character; the second opens a string that never closes.
        ("FINAL(f'{x}')", None),
        ("FINAL(rock 'n' roll :)", Some("rock 'n' roll :")),
        ("FINAL(the dogs' bowl)", Some("the dogs' bowl")),
        // Bare arguments.
        ("The answer is FINAL(42).", Some("42")),
        ("The answer is **FINAL(42)**.  \r\nbye", Some("42")),
        ("The answer is FINAL(42), yes", None),
        ("  > - # **FINAL(42), yes", Some("42")),
        ("1. FINAL(42), yes", None),
        ("so FINAL(a\nb)\nyes", Some("a\nb")),
        // Calls in calls.
        ("FINAL(FINAL('x'))", Some("FINAL('x')")),
        ("prose FINAL(see FINAL('x')) continues", Some("x")),
        ("SUBMIT(FINAL('x'))", Some("x")),
        ("FINAL(oops 'abc FINAL('42') and on", Some("oops 'abc FINAL('42'")),
        ("FINAL(\"open FINAL('x') FINAL('y')", Some("x")),
        ("FINAL('open FINAL(\"x\") FINAL('y')", Some("'open FINAL(\"x\") FINAL('y'")),
        // Variables.
        ("FINAL_VAR(a)", Some("1")),
        ("FINAL_VAR( \" x_1 \" ) is it", Some("text")),
        ("FINAL_VAR(nope)\nFINAL(2)", Some("2")),
        ("it is FINAL_VAR(r)", Some("{\"k\":[1]}")),
        ("it is FINAL_VAR(r) or so", None),
        // Keywords.
        ("I will SUBMIT(answer='a', n=1) now", Some("a")),
        ("SUBMIT(answer=42)", Some("42")),
        ("SUBMIT('x', answer=[1, 'b', {'c': None}])", Some("[1,\"b\",{\"c\":null}]")),
        ("SUBMIT(x == 1)", None),
        ("SUBMIT(f(x=1))", None),
        ("SUBMIT('a=1')", None),
        (
            "SUBMIT(s=abc, t=True, n=-5, m=+3, f=1e3, u=1_000)",
            Some("{\"s\":\"abc\",\"t\":true,\"n\":-5,\"m\":3,\"f\":1000.0,\"u\":1000}"),
        ),
        ("SUBMIT(a=1, a=2)", Some("{\"a\":2}")),
        ("SUBMIT(s=\"12\", q='it\\'s (x=y)')", Some("{\"s\":\"12\",\"q\":\"it's (x=y)\"}")),
        // Code in messages.
        ("``FINAL('x') ` FINAL('y')`` FINAL('z')", Some("z")),
        ("`` FINAL('x') ` FINAL('y') ` FINAL('z')", Some("x")),
        ("a ` stray FINAL('x')\n\nand ` later", Some("x")),
        ("a ` code FINAL('x')\nand ` later", None),
        ("``` FINAL('x') ```", None),
        ("```FINAL('x')\n", None),
        ("> ```\n> FINAL('x')\n> ```\n> FINAL('y')", Some("y")),
        ("- ~~~~ sh\n~~~\nFINAL('x')\n~~~~~  \nFINAL('y')", Some("y")),
        ("````\n```\nFINAL('x')\n```\n````\nFINAL('y')", Some("y")),
        ("text ` open\n```\nFINAL('x')\n```\nFINAL('y') ` z", Some("y")),
        ("~~struck~~ FINAL('y')", Some("y")),
        ("FINAL('''\n```\ncode\n```\n''')", Some("```\ncode\n```")),
    ] {
        assert_eq!(answer(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn last_declaration_ends_last() {
    let last = json!({"pick": "last"});
    for (text, expected) in [
        ("FINAL('a')\nFINAL(FINAL('b'))", "FINAL('b')"),
        ("FINAL('a')\nsee FINAL(FINAL('b')) there", "b"),
        ("FINAL('a') FINAL_VAR(nope)", "a"),
        ("FINAL('a') `FINAL('b')`", "a"),
    ] {
        assert_eq!(answer_of(&last, text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn options_change_the_answer() {
    let whole = "so FINAL('x') it is";
    let config = json!({"extract_answer": false});
    assert_eq!(answer_of(&config, whole).as_deref(), Some(whole));
    assert_eq!(answer_of(&config, "so FINAL(x) it is"), None);
    let config = json!({"case_sensitive": false});
    assert_eq!(answer_of(&config, "submit(Answer=1)").as_deref(), Some("{\"Answer\":1}"));
    let config = json!({"scope": "anywhere"});
    assert_eq!(answer_of(&config, "`FINAL('x')`").as_deref(), Some("x"));
}

#[test]
fn unknown_variable_is_reported_to_model() {
    let verdict = policy(&json!({})).should_terminate(&message("FINAL_VAR(nope)"), &context());
    let Verdict::Tell(text) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(text, "FINAL_VAR(nope): there is no variable `nope`; known are a, x_1, r");
}

#[test]
fn submission_delivers_an_object() {
    let text = "SUBMIT(answer='a', n=1)";
    let verdict = policy(&json!({})).should_terminate(&message(text), &context());
    let stop = verdict.stop().unwrap();
    assert_eq!(stop.deliverable(), Some(json!({"answer": "a", "n": 1})));
}

/// Feeds the chunks; returns the byte after which the policy stopped, and the answer.
fn stream(config: &Value, pieces: &[&str]) -> Option<(usize, Option<String>)> {
    let mut policy = policy(config);
    let context = context();
    policy.begin_turn();
    let mut at = 0;
    for piece in pieces {
        at += piece.len();
        if let Some(stop) = policy.on_delta(piece, &context) {
            return Some((at, stop.answer));
        }
    }
    None
}

#[test]
fn stream_stops_at_earliest_certain_byte() {
    for (text, at) in [
        ("so FINAL('x') it", Some("so FINAL('x')")),
        ("FINAL(x) it", Some("FINAL(x)")),
        ("so FINAL(x) .\nit", Some("so FINAL(x) .\n")),
        ("so FINAL(x)", None),
        ("FINAL( FINAL('x')", None),
        ("a ` b FINAL('x') c\n\nd", Some("a ` b FINAL('x') c\n\n")),
        ("a ` b ` FINAL('x') c", Some("a ` b ` FINAL('x')")),
        ("FINAL_VAR(nope)\nFINAL('x')", None),
        ("FINAL_VAR(a)\nFINAL('x')", Some("FINAL_VAR(a)")),
    ] {
        let pieces: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        let stopped = stream(&json!({}), &pieces).map(|(at, _)| at);
        assert_eq!(stopped, at.map(str::len), "{text}");
    }
}

const TOKENS: &[&str] = &[
    "FINAL(",
    "FINAL_VAR(",
    "SUBMIT(",
    "FINAL",
    "(",
    ")",
    "'",
    "\"",
    "'''",
    "\"\"\"",
    "\\",
    "\n",
    "\r\n",
    "\n\n",
    "```",
    "~~~",
    "`",
    "``",
    ">",
    "-",
    "*",
    "#",
    " ",
    "\t",
    "a",
    "x_1",
    "nope",
    "é",
    "🎉",
    "=",
    "==",
    ",",
    ".",
    "!",
    "{",
    "]",
    "k=1",
    "FINAL('v')",
    "FINAL(v)\n",
    "_",
];

fn adversarial() -> impl Strategy<Value = (String, Vec<usize>)> {
    let text = prop::collection::vec(prop::sample::select(TOKENS), 0..40)
        .prop_map(|tokens| tokens.concat());
    (text, prop::collection::vec(0usize..200, 0..12))
}

fn cut<'a>(text: &'a str, at: &[usize]) -> Vec<&'a str> {
    let mut at: Vec<usize> =
        at.iter().map(|&i| i.min(text.len())).filter(|&i| text.is_char_boundary(i)).collect();
    at.sort_unstable();
    at.push(text.len());
    let mut from = 0;
    at.into_iter().map(|to| &text[std::mem::replace(&mut from, to)..to]).collect()
}

fn scanner(prose: bool, pick: Pick) -> Scanner {
    Scanner::new(ScannerOptions { prose, case_sensitive: true, pick })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(random_cases(256)))]

    #[test]
    fn scanner_matches_simple_implementation((text, at) in adversarial(), prose: bool, last: bool) {
        let pick = if last { Pick::Last } else { Pick::First };
        let mut scanner = scanner(prose, pick);
        for piece in cut(&text, &at) {
            scanner.push(piece);
        }
        scanner.finish();
        let ours = scanner.declarations().first().map(|d| (d.at(), d.argument().to_owned()));
        prop_assert_eq!(ours, plain::scan(&text, prose, pick), "{:?}", text);
    }

    #[test]
    fn streamed_and_complete_text_agree((text, at) in adversarial(), config in prop::sample::select(vec![
        json!({}), json!({"scope": "anywhere"}), json!({"pick": "last"}),
        json!({"case_sensitive": false}), json!({"extract_answer": false}),
        json!({"matching": "regex"}),
    ])) {
        let whole = answer_of(&config, &text);
        if let Some((stopped, answer)) = stream(&config, &cut(&text, &at)) {
            prop_assert_eq!(&answer, &whole, "{:?}", text);
            // The text of an aborted turn that is stored gives the same answer.
            prop_assert_eq!(&answer_of(&config, &text[..stopped]), &whole, "{:?}", text);
        }
        // The policy stops at the same character for every split; single characters show which.
        let finest: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        let first = stream(&config, &finest).map(|(at, _)| at);
        let pieces = cut(&text, &at);
        let coarse = stream(&config, &pieces).map(|(at, _)| at);
        let mut end = 0;
        let expected = first.and_then(|first| pieces.iter().find_map(|p| {
            end += p.len();
            (end >= first).then_some(end)
        }));
        prop_assert_eq!(coarse, expected, "{:?}", text);
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in any::<String>(), config in prop::sample::select(vec![
        json!({}), json!({"matching": "regex"}),
    ])) {
        let _ = answer_of(&config, &text);
    }

    #[test]
    fn arbitrary_pattern_does_not_panic(pattern in "[\\\\\\[\\](){}*+?.^$|a-d0-3PwsS:<>=!,-]{0,12}", text in "[a-d0-3 ()]{0,12}") {
        if let Ok(mut policy) = FinalPattern::from_config(&json!({"final_patterns": [pattern]})) {
            let _ = policy.should_terminate(&message(&text), &context());
        }
    }
}

#[test]
fn scanner_work_is_linear() {
    type Text = fn(usize) -> String;
    let texts: &[(&str, Text)] = &[
        ("openers", |n| "FINAL(".repeat(n)),
        ("openers that close", |n| "FINAL(".repeat(n) + &")".repeat(n)),
        ("strings that swap", |n| "FINAL('x FINAL(\"y ".repeat(n)),
        ("small groups merged into a large one", |n| "FINAL(".repeat(n) + &"'FINAL(x'".repeat(n)),
        ("deep groups merged into a deep one", |n| {
            "FINAL(".repeat(n) + &format!("'FINAL({}x'", "(".repeat(50)).repeat(n / 10)
        }),
        ("keywords", |n| "SUBMIT(a=".repeat(n) + &"1, b=2)".repeat(n)),
        ("keywords never closed", |n| "SUBMIT(a=[1,b=2 ".repeat(n)),
        ("empty strings", |n| "FINAL('' '''".repeat(n)),
        ("backtick runs", |n| (1..n / 20).map(|i| "`".repeat(i % 50 + 1) + " FINAL(1) ").collect()),
        ("waiting for the line's end", |n| "x FINAL(1 ".repeat(n) + &") ".repeat(n)),
    ];
    for (name, text) in texts {
        let work = |n: usize| {
            let text = text(n);
            let mut scanner = scanner(true, Pick::First);
            for piece in cut(&text, &[text.len() / 3, text.len() / 2]) {
                scanner.push(piece);
            }
            scanner.finish();
            let _ = scanner.declarations();
            (scanner.work(), text.len() as u64)
        };
        for n in [2_000, 4_000, 8_000] {
            let (steps, bytes) = work(n);
            assert!(steps <= 12 * bytes, "{name}: {steps} steps for {bytes} bytes");
        }
    }
}

/// Cases in which the second parser of the original differs from Endstop's rules, and the reason.
const PARSER_DIFFERS: &[(&str, &str)] = &[
    ("rp-018", "a bare call that begins its line counts"),
    ("rp-020", "the argument ends at its own bracket"),
    ("rp-023", "the argument ends at its own bracket"),
    ("rp-028", "a string ends with the quote it began with"),
    ("rp-031", "the first in the text wins, of whatever kind"),
    ("rp-032", "no identifier character before the name"),
    ("rp-033", "no identifier character before the name"),
    ("rp-035", "a blank argument is not a declaration"),
    ("rp-036", "a blank argument is not a declaration"),
    ("rp-038", "a literal is trimmed inside its quotes"),
    ("rp-039", "one pair of quotes is removed"),
    ("rp-040", "quotes are removed from a literal only"),
    ("rp-047", "the argument ends at its own bracket"),
    ("rp-050", "a full stop may follow a bare call"),
    ("rp-052", "asterisks may stand around a bare call"),
    ("rp-053", "inline code does not count"),
    ("rp-054", "only blanks may stand before the bracket"),
    ("rp-107", "a call that never closes is not a call"),
    ("rp-304", "a quoted value is a string"),
    ("rp-305", "a quoted value is a string"),
    ("rp-309", "lists are read"),
    ("rp-311", "escapes are read"),
];

#[test]
fn second_parser_matches_vectors() {
    let mut found = Vec::new();
    let mut run = 0;
    for case in cases("rlm_final_parser.json", 113) {
        let (input, expect) = (&case["input"], &case["expect"]);
        let text = input["text"].as_str().unwrap_or_default();
        let ours = match input["fn"].as_str().unwrap() {
            "detect_final_in_text" if input["text"].is_string() => {
                let mut scanner = scanner(true, Pick::First);
                scanner.push(text);
                scanner.finish();
                let first = scanner.declarations().first().copied();
                let variables = StepContext {
                    variables: [("r", "r"), ("result", "result"), ("v", "v"), ("y", "y")]
                        .into_iter()
                        .map(|(k, v)| (k.to_owned(), json!(v)))
                        .collect(),
                    ..StepContext::default()
                };
                let verdict = policy(&json!({})).should_terminate(&message(text), &variables);
                let content = verdict.stop().and_then(|s| s.answer.clone());
                let same = first.is_some() == expect["detected"].as_bool().unwrap()
                    && (expect["final_type"] == json!("submit")
                        || content.as_deref() == expect["content"].as_str());
                (same, format!("{content:?}"))
            }
            "detect_final_in_code" => {
                let mut scanner = scanner(false, Pick::First);
                scanner.push(text);
                scanner.finish();
                let detected = !scanner.declarations().is_empty();
                (json!(detected) == expect["detected"], format!("{detected}"))
            }
            "parse_submit_kwargs" => {
                let call = format!("SUBMIT({text})");
                let verdict = policy(&json!({})).should_terminate(&message(&call), &context());
                let fields = verdict
                    .stop()
                    .and_then(endstop_core::Stop::deliverable)
                    .unwrap_or_else(|| json!({}));
                (fields == expect["fields"], fields.to_string())
            }
            _ => continue,
        };
        run += 1;
        if !ours.0 {
            found.push((id(&case).to_owned(), format!("{text:?}: {} for {expect}", ours.1)));
        }
    }
    assert_eq!(run, 82);
    assert_differences(&found, PARSER_DIFFERS);
}
