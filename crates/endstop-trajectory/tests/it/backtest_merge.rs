//! Tests that a backtest in parts has the same report, byte for byte, for any division of its runs and
//! any order of the parts, and that parts which do not belong together are refused.

use endstop_trajectory::backtest::{
    Backtest, Batch, Candidate, Family, MergeError, Merged, Plan, merge, tally,
};
use endstop_trajectory::read::{Options, Outcomes, for_each};
use endstop_trajectory::{Call, CallResult, Recorded, Role, Step, Trajectory, Usage, write};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn plan() -> Plan {
    let mut candidates = Candidate::read(&json!([
        {"repeat_call": {"times": 3}},
        {"same_error": {"times": 2}},
        {"any": [{"repeat_call": {"times": 2}}, {"cost": {"usd": 0.3}}]},
        {"name": "short", "limits": {"max_turns": 4}},
    ]))
    .unwrap();
    candidates.push(Candidate::default_limits());
    let mut plan = Plan::new(candidates);
    plan.alpha = Some(0.3);
    plan
}

fn run() -> impl Strategy<Value = (usize, Trajectory<'static>)> {
    let cost = option::weighted(0.8, proptest::sample::select(vec![0.1, 0.07, 1e-9, 3e12]));
    let tokens = option::weighted(0.8, proptest::sample::select(vec![7, 500, u64::MAX / 2]));
    let reward = option::weighted(0.3, proptest::sample::select(vec![0.0, 0.5, 1.0]));
    let step = (0_u8..3, 0_u8..2, any::<bool>(), tokens, cost, reward);
    let facts = (0_u8..9, option::weighted(0.9, 0_u8..6), option::weighted(0.9, any::<bool>()));
    let model = proptest::sample::select(vec!["gpt-4o", "m", ""]);
    (0_usize..2, vec(step, 0..8), facts, model).prop_map(
        |(dataset, steps, (id, task, success), model)| {
            let steps =
                steps.into_iter().map(|(call, said, is_error, tokens, cost_usd, reward)| {
                    let arguments = format!("{{\"a\":{call}}}");
                    Step {
                        calls: vec![Call {
                            id: Some("c".into()),
                            name: "f".into(),
                            arguments: arguments.into(),
                            ..Call::default()
                        }],
                        results: vec![CallResult {
                            call_id: Some("c".into()),
                            content: said.to_string().into(),
                            is_error,
                            ..CallResult::default()
                        }],
                        usage: tokens.map(|n| {
                            let (prompt_tokens, completion_tokens) = (Some(n), Some(3));
                            Box::new(Usage { prompt_tokens, completion_tokens, ..Usage::default() })
                        }),
                        cost_usd,
                        reward,
                        ..Step::new(Role::Agent)
                    }
                });
            let run = Trajectory {
                task_id: task.map(|task| format!("kind-{}/{task}", task % 2).into()),
                model: (!model.is_empty()).then(|| model.into()),
                recorded: Recorded { reward: None, success },
                steps: steps.collect(),
                ..Trajectory::new(format!("r{id}"))
            };
            (dataset, run)
        },
    )
}

fn line(run: &Trajectory<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    write::atif(run, &mut line).unwrap();
    line.push(b'\n');
    line
}

const DATASETS: [&str; 2] = ["a", "b"];

fn part(dataset: usize, lines: Vec<Vec<u8>>, plan: &Plan) -> Vec<u8> {
    let dataset = Some(DATASETS[dataset]);
    tally(Batch { bytes: lines.concat(), file: "part.jsonl", dataset }, plan).unwrap()
}

fn text(merged: &Merged) -> String {
    serde_json::to_string(merged).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn division_and_order_change_no_byte(
        runs in vec(run(), 1..24),
        parts in vec(0_usize..5, 24),
        order in any::<proptest::sample::Index>(),
        shift in any::<proptest::sample::Index>(),
    ) {
        let plan = plan();
        let of = |dataset: usize, runs: &mut dyn Iterator<Item = &(usize, Trajectory<'static>)>| {
            part(dataset, runs.filter(|run| run.0 == dataset).map(|run| line(&run.1)).collect(), &plan)
        };
        let whole = text(&merge([0, 1].map(|dataset| of(dataset, &mut runs.iter()))).unwrap());
        // A cut at any place and in any order of the runs, one part for each number and dataset.
        let mut mixed = runs.clone();
        mixed.rotate_left(order.index(runs.len()));
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for number in 0..5 {
            for dataset in 0..2 {
                let own = mixed.iter().zip(&parts).filter(|(_, own)| **own == number);
                pieces.push(of(dataset, &mut own.map(|(run, _)| run)));
            }
        }
        let at = shift.index(pieces.len());
        pieces.rotate_left(at);
        prop_assert_eq!(text(&merge(&pieces).unwrap()), whole.clone());
        pieces.reverse();
        prop_assert_eq!(text(&merge(&pieces).unwrap()), whole.clone());

        // The figures of one pass without any bytes in between.
        let test = Backtest::new(&plan.candidates).unwrap();
        let mut test = test.calibrating(&Family::all(), 0.3);
        for (dataset, run) in &runs {
            let mut bytes = line(run);
            bytes.pop();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("run.jsonl");
            std::fs::write(&file, bytes).unwrap();
            for_each(file, &Options::default(), &mut |run| {
                test.run(DATASETS[*dataset], &run.unwrap());
            })
            .unwrap();
        }
        let whole: Value = serde_json::from_str(&whole).unwrap();
        prop_assert_eq!(serde_json::to_value(test.finish()).unwrap(), whole["figures"].clone());
    }
}

fn fixture() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/reference");
    let file = std::fs::File::open(folder.join("taubench_gpt4o_airline.jsonl.zst")).unwrap();
    zstd::decode_all(file).unwrap()
}

#[test]
fn parts_of_a_file_equal_the_file() {
    let bytes = fixture();
    let plan = Plan { alpha: Some(0.2), ..Plan::new(Candidate::reference().unwrap()) };
    let count = |bytes: Vec<u8>| {
        let file = "taubench_gpt4o_airline.jsonl";
        tally(Batch { bytes, file, dataset: Some("taubench_gpt4o_airline") }, &plan).unwrap()
    };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let whole = merge([count(bytes.clone())]).unwrap();
    assert_eq!((whole.reading.runs, whole.reading.duplicates), (lines.len() as u64, 0));
    for parts in [2, 7, lines.len()] {
        let size = lines.len().div_ceil(parts);
        let mut pieces: Vec<_> = lines.chunks(size).map(|part| count(part.concat())).collect();
        assert_eq!(text(&merge(&pieces).unwrap()), text(&whole), "{parts} parts");
        pieces.reverse();
        assert_eq!(text(&merge(&pieces).unwrap()), text(&whole), "{parts} parts, reversed");
    }
    // The same runs twice are noticed, also if they are in different parts.
    let twice = merge([count(bytes.clone()), count(bytes.clone())]).unwrap();
    assert_eq!(twice.reading.duplicates, lines.len() as u64);
    let expected: Value =
        serde_json::from_str(include_str!("../../fixtures/reference/expected.json")).unwrap();
    let counts = &whole.figures.reference_results()["taubench_gpt4o_airline"];
    assert_eq!(counts, &expected["taubench_gpt4o_airline"]);
}

#[test]
fn dataset_defaults_to_the_file() {
    let plan = Plan::new(Candidate::reference().unwrap());
    let bytes = zstd::encode_all(&*fixture(), 1).unwrap();
    let batch = Batch { bytes, file: "folder/tau.jsonl.zst", dataset: None };
    let merged = merge([tally(batch, &plan).unwrap()]).unwrap();
    assert_eq!(merged.figures.datasets[0].name, "tau");
}

#[test]
fn separate_outcomes_apply_to_parts() {
    let mut plan = Plan::new(Candidate::reference().unwrap());
    plan.outcomes = Some(Outcomes::parse(r#"{"r1": true}"#).unwrap());
    let turn = Step { text: "a".into(), ..Step::new(Role::Agent) };
    let run = |id: &str| {
        line(&Trajectory { steps: vec![turn.clone()], ..Trajectory::new(id.to_owned()) })
    };
    let pieces = ["r1", "r2"].map(|id| part(0, vec![run(id)], &plan));
    let merged = merge(pieces).unwrap();
    assert_eq!(merged.figures.whole().unwrap().succeeded, 1);
    assert_eq!(merged.figures.skipped.without_outcome, 1);
}

#[test]
fn damaged_input_is_counted() {
    let plan = plan();
    let count = |bytes: &[u8]| {
        let batch = Batch { bytes: bytes.to_vec(), file: "x.jsonl", dataset: Some("a") };
        tally(batch, &plan).unwrap()
    };
    let good = line(&Trajectory::new("a"));
    let half = [&good[..], b"{\"schema\": tru"].concat();
    let merged = merge([count(&half), count(b"no run at all"), count(b"")]).unwrap();
    assert_eq!(merged.reading.runs, 1);
    assert!(!merged.reading.problems.is_empty());
    assert!(
        merged.reading.problems.values().all(|found| found.count == 1 || found.first.len() <= 5)
    );
}

#[test]
fn unequal_parts_are_refused() {
    let one = part(0, Vec::new(), &plan());
    let refusal = |plan: Plan| match merge([one.clone(), part(0, Vec::new(), &plan)]) {
        Err(MergeError::Settings { part: 2, differs, found, first }) if found != first => differs,
        other => panic!("{other:?}"),
    };
    let fewer = Plan { candidates: plan().candidates[..4].to_vec(), ..plan() };
    assert_eq!(refusal(fewer), "4 candidates instead of 5");
    let mut other = plan();
    other.candidates.swap(0, 1);
    assert_eq!(refusal(other), "candidate `same_error(2)` instead of `repeat_call(3)`");
    let mut other = plan();
    let spec = json!([{"name": "short", "limits": {"max_turns": 5}}]);
    other.candidates[3] = Candidate::read(&spec).unwrap().remove(0);
    assert_eq!(refusal(other), "candidate `short` has another meaning");
    assert_eq!(refusal(Plan { alpha: Some(0.1), ..plan() }), "another calibration");
    assert_eq!(refusal(Plan { alpha: None, ..plan() }), "another calibration");
    assert_eq!(merge(Vec::<Vec<u8>>::new()).unwrap_err(), MergeError::Empty);
}

/// Replaces text in the header of a part.
fn edited(part: &[u8], from: &str, to: &str) -> Vec<u8> {
    let end = part.iter().position(|byte| *byte == b'\n').unwrap();
    let header = std::str::from_utf8(&part[..end]).unwrap();
    assert!(header.contains(from), "{header}");
    [header.replacen(from, to, 1).as_bytes(), &part[end..]].concat()
}

#[test]
fn other_versions_and_damage_are_refused() {
    let one = part(0, vec![line(&Trajectory::new("a"))], &plan());
    let error = |bytes: Vec<u8>| merge([one.clone(), bytes]).unwrap_err().to_string();
    for (from, to) in [("\"version\":2", "\"version\":3"), ("\"endstop\":\"", "\"endstop\":\"9")] {
        let said = error(edited(&one, from, to));
        assert!(
            said.contains("part 2: counted by endstop") && said.contains("one version"),
            "{said}"
        );
    }
    let said = error(edited(&one, "endstop-tally", "else"));
    assert!(said.contains("part 2: invalid counts: the format is `else`"), "{said}");
    let said = error(edited(&one, "\"times\":3", "\"times\":4"));
    assert!(said.contains("digest"), "{said}");
    assert!(error(Vec::new()).contains("no header"));
    // No prefix and no changed byte is a panic, or counts of another meaning.
    for end in (0..one.len()).step_by(7) {
        error(one[..end].to_vec());
    }
    for at in (0..one.len()).step_by(3) {
        let mut bytes = one.clone();
        bytes[at] ^= 0x11;
        let _ = merge([one.clone(), bytes]);
    }
}

/// Counts at the end of their range saturate.
#[test]
fn huge_counts_are_bounded() {
    let turn = Step { text: "a".into(), ..Step::new(Role::Agent) };
    let recorded = Recorded { reward: None, success: Some(false) };
    let run = Trajectory { steps: vec![turn], recorded, ..Trajectory::new("a") };
    let one = part(0, vec![line(&run)], &plan());
    let end = one.iter().position(|byte| *byte == b'\n').unwrap();
    let body = String::from_utf8(zstd::decode_all(&one[end + 1..]).unwrap()).unwrap();
    let large = |from: &str| {
        let to = format!("{}{}", &from[..=from.rfind(':').unwrap()], u64::MAX);
        assert!(body.contains(from), "{body}");
        let body = body.replace(from, &to);
        let packed = zstd::encode_all(body.as_bytes(), 1).unwrap();
        [&one[..=end], &packed[..]].concat()
    };
    for from in ["\"runs\":1", "\"steps\":1", "\"steps_failed\":1", "\"fired\":0", "\"turns\":1"] {
        let huge = large(from);
        let merged = merge([huge.clone(), huge, one.clone()]).unwrap();
        assert!(text(&merged).contains("18446744073709551615"), "{from}");
    }
}
