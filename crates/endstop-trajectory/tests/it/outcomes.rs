//! Reads outcomes from files of odd shapes: quoted cells, line breaks in cells, duplicate runs,
//! garbage after a value.

use crate::common::Folder;
use endstop_trajectory::Trajectory;
use endstop_trajectory::read::{Outcomes, ProblemKind};
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

/// Returns the reward and the success of a run without an outcome of its own.
fn outcome(outcomes: &mut Outcomes, id: &str) -> Option<(Option<f64>, Option<bool>)> {
    let mut run = Trajectory::new(id.to_owned());
    outcomes.apply(&mut run).then_some((run.recorded.reward, run.recorded.success))
}

#[test]
fn cells_may_contain_anything() {
    for (what, csv, id, want) in [
        ("quotes", "run_id,reward\n\"a \"\"b\"\"\",1\n", "a \"b\"", (Some(1.0), Some(true))),
        ("a comma", "run_id,reward\n\"a,b\",0\n", "a,b", (Some(0.0), Some(false))),
        ("a line break", "run_id,success\n\"a\nb\",no\n", "a\nb", (None, Some(false))),
        ("CRLF", "run_id,success\r\na,YES\r\n\r\n", "a", (None, Some(true))),
        ("no line break", "run_id,success\na,1", "a", (None, Some(true))),
        ("a byte order mark", "\u{feff}run_id,success\na,0\n", "a", (None, Some(false))),
        ("quoted names", "\"id\",\"Score\"\n7,\"0.25\"\n", "7", (Some(0.25), Some(false))),
        ("other columns", "x,success,run_id\n,true,a\n", "a", (None, Some(true))),
        ("a short row", "run_id,success,reward\na,true\n", "a", (None, Some(true))),
        ("a long row", "run_id,success\na,true,x,y\n", "a", (None, Some(true))),
        ("both, in conflict", "run_id,success,reward\na,false,1\n", "a", (Some(1.0), Some(false))),
        ("neither", "run_id,success,reward\na,,\n", "a", (None, None)),
        ("almost one", "run_id,reward\na,0.9999999\n", "a", (Some(0.999_999_9), Some(true))),
        ("an exponent", "run_id,reward\na,1e-3\n", "a", (Some(0.001), Some(false))),
        ("negative", "run_id,reward\na,-1\n", "a", (Some(-1.0), Some(false))),
        (
            "unicode",
            "run_id,success\n\u{e9}\u{1f600},true\n",
            "\u{e9}\u{1f600}",
            (None, Some(true)),
        ),
    ] {
        let mut outcomes = Outcomes::parse(csv).unwrap();
        assert_eq!(outcome(&mut outcomes, id), Some(want), "{what}");
        assert_eq!((outcomes.len(), outcomes.unused()), (1, 0), "{what}");
    }
}

#[test]
fn problems_name_their_line() {
    for (what, text, at, says) in [
        ("a value", "run_id,success\na,true\nb,maybe\n", Some(3), "invalid `success`"),
        (
            "a value after a cell of two lines",
            "run_id,success\n\"a\n\",true\nb,x\n",
            Some(4),
            "`success`",
        ),
        ("a number", "run_id,reward\n\na,inf\n", Some(3), "invalid `reward`"),
        ("no id", "run_id,reward\n,1\n", Some(2), "missing run id"),
        ("a duplicate", "run_id,reward\na,1\n\na,1\n", Some(4), "duplicate run `a`"),
        ("an open quote", "run_id,reward\nb,1\n\"a,1\nc,1\n", Some(3), "unterminated quote"),
        ("a line", "{\"id\":\"a\",\"reward\":1}\n\n{\"reward\":1}\n", Some(3), "missing `run_id`"),
        (
            "a flag",
            "{\"id\":\"a\",\"reward\":1}\n\n\n{\"id\":\"b\",\"success\":2}",
            Some(4),
            "`success`",
        ),
        (
            "a duplicate line",
            "{\"id\":\"a\",\"reward\":1}\n{\"id\":\"a\",\"reward\":0}",
            Some(2),
            "duplicate",
        ),
        (
            "an object with a run twice",
            "{\"a\": true, \"b\": 1, \"a\": false}",
            None,
            "duplicate run `a`",
        ),
        ("an object", "{\"a\": \"true\"}", None, "run `a`"),
    ] {
        let problem = Outcomes::parse(text).unwrap_err();
        assert!(problem.what.contains(says), "{what}: {problem:?}");
        assert_eq!(problem.at, at, "{what}: {problem:?}");
    }
}

#[test]
fn cut_outcomes_are_refused() {
    let text = json!({"a": true, "b": {"reward": 0.5, "success": false}, "c": 1}).to_string();
    assert_eq!(Outcomes::parse(&text).unwrap().len(), 3);
    for end in 1..text.len() {
        let problem = Outcomes::parse(&text[..end]).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Half, "cut at {end}: {problem:?}");
    }
    for garbage in ["}", "]", "x", ",", "{\"b\""] {
        let problem = Outcomes::parse(&format!("{{\"a\": true}}{garbage}")).unwrap_err();
        assert!(matches!(problem.kind, ProblemKind::Malformed | ProblemKind::Half), "{garbage}");
    }
}

#[test]
fn outcome_of_file_completes_the_recording() {
    let mut outcomes =
        Outcomes::parse(r#"{"only success": true, "only reward": 0.5, "null": null}"#).unwrap();
    for (id, reward, success) in [
        // The recorded reward stays if the file has none.
        ("only success", Some(0.0), Some(true)),
        ("only reward", Some(0.5), Some(false)),
        ("null", Some(0.0), Some(false)),
    ] {
        let mut run = Trajectory::new(id);
        run.recorded.reward = Some(0.0);
        run.recorded.success = Some(false);
        assert!(outcomes.apply(&mut run));
        assert_eq!((run.recorded.reward, run.recorded.success), (reward, success), "{id}");
    }
    assert_eq!((outcomes.unused(), outcomes.missing()), (0, 0));
    for nth in 0..9 {
        assert!(!outcomes.apply(&mut Trajectory::new(format!("x{nth}"))));
    }
    assert_eq!((outcomes.missing(), outcomes.missed().len()), (9, 5));
}

fn quoted(cell: &str) -> String {
    format!("\"{}\"", cell.replace('"', "\"\""))
}

proptest! {
    #[test]
    fn three_forms_agree(
        all in btree_map("[a-z\u{e9},\"\n;\\\\]{1,6}", (option::of(-2.0..2.0), option::of(any::<bool>())), 2..7)
    ) {
        // A cell is trimmed, because tables are aligned with spaces.
        let all: Vec<_> = all.into_iter().filter(|(id, _)| id.trim() == id).collect();
        prop_assume!(all.len() > 1);
        let (mut csv, mut lines, mut object) =
            ("run_id,reward,success\n".to_owned(), String::new(), serde_json::Map::new());
        for (id, (reward, success)) in &all {
            let text = |value: Option<String>| value.unwrap_or_default();
            csv.push_str(&format!(
                "{},{},{}\n",
                quoted(id), text(reward.map(|r: f64| r.to_string())), text(success.map(|s| s.to_string()))
            ));
            lines.push_str(&json!({"run_id": id, "reward": reward, "success": success}).to_string());
            lines.push('\n');
            object.insert(id.clone(), json!({"reward": reward, "success": success}));
        }
        let object = serde_json::Value::Object(object).to_string();
        for text in [csv, lines, object] {
            let mut outcomes = Outcomes::parse(&text).unwrap();
            prop_assert_eq!(outcomes.len(), all.len(), "{}", text);
            for (id, (reward, success)) in &all {
                let success = success.or(reward.map(|reward| reward >= 1.0 - 1e-6));
                let found = outcome(&mut outcomes, id);
                prop_assert_eq!(found, Some((*reward, success)), "{}", text);
            }
        }
    }
}

#[test]
fn json_lines_may_have_scores() {
    // CSV reads the column `score`; the same name in JSON must not lose the outcome.
    for text in [
        "{\"id\":\"a\",\"score\":1}\n{\"id\":\"b\",\"score\":0.5}\n",
        "{\"a\":{\"score\":1},\"b\":{\"score\":0.5}}",
        "id,score\na,1\nb,0.5\n",
    ] {
        let mut outcomes = Outcomes::parse(text).unwrap();
        assert_eq!(outcome(&mut outcomes, "a"), Some((Some(1.0), Some(true))), "{text}");
        assert_eq!(outcome(&mut outcomes, "b"), Some((Some(0.5), Some(false))), "{text}");
    }
    // Next to a reward or a success, a score may be anything.
    for (text, want) in [
        ("{\"a\":{\"reward\":0,\"score\":1}}", (Some(0.0), Some(false))),
        ("{\"a\":{\"success\":true,\"score\":{\"f1\":0.5}}}", (None, Some(true))),
        ("{\"a\":{\"success\":true,\"score\":0.5}}", (Some(0.5), Some(true))),
        ("{\"id\":\"a\",\"success\":true,\"note\":1,\"note\":2}", (None, Some(true))),
    ] {
        assert_eq!(outcome(&mut Outcomes::parse(text).unwrap(), "a"), Some(want), "{text}");
    }
    // A single line is a line too, although an object of runs may have a run named `id`.
    let mut one = Outcomes::parse("{\"run_id\":\"a\",\"score\":1}").unwrap();
    assert_eq!(outcome(&mut one, "a"), Some((Some(1.0), Some(true))));
    let mut map = Outcomes::parse("{\"id\":1,\"other\":0}").unwrap();
    assert_eq!(outcome(&mut map, "id"), Some((Some(1.0), Some(true))));
}

#[test]
fn contradictory_outcomes_are_refused() {
    for (text, says) in [
        // JSON parsers take the last of two members, which would hide the contradiction.
        ("{\"id\":\"a\",\"success\":true,\"success\":false}", "duplicate `success`"),
        ("{\"id\":\"a\",\"reward\":1}\n{\"id\":\"b\",\"id\":\"c\",\"reward\":1}", "duplicate `id`"),
        ("{\"id\":\"a\",\"score\":\"high\"}", "invalid `score`"),
        ("{\"a\":{\"score\":true}}", "invalid `score`"),
        ("{\"id\":\"a\",\"reward\":1e999}", "number out of range"),
        ("{\"id\":\"a\",\"reward\":-1e999}", "number out of range"),
        ("{\"a\": NaN}", "expected value"),
        ("id,reward\na,1e999\n", "`reward`"),
        ("id,reward\na,-inf\n", "`reward`"),
        ("id,reward\na,0x1p3\n", "`reward`"),
        ("id,success\na\0,tr\0ue\n", "`success`"),
    ] {
        let problem = Outcomes::parse(text).unwrap_err();
        assert!(problem.what.contains(says), "{text:?}: {problem:?}");
    }
}

#[test]
fn files_of_other_encodings_are_refused() {
    let folder = Folder::new("outcomes-encodings");
    let text = "run_id,success\na,true\n";
    let wide = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect()
    };
    for (name, bytes) in [
        ("utf-16-le.csv", wide(u16::to_le_bytes)),
        ("utf-16-be.csv", wide(u16::to_be_bytes)),
        ("latin-1.csv", b"run_id,success\n\xe9,true\n".to_vec()),
        ("empty.csv", Vec::new()),
        ("mark.csv", b"\xef\xbb\xbf".to_vec()),
        ("nul.csv", vec![0; 4096]),
    ] {
        let path = folder.file(name, bytes);
        let problem = Outcomes::read(&path).unwrap_err();
        assert_eq!(problem.file, path.display().to_string());
        assert!(
            matches!(problem.kind, ProblemKind::Unreadable | ProblemKind::Malformed),
            "{problem}"
        );
    }
    assert_eq!(Outcomes::read(folder.file("good.csv", text)).unwrap().len(), 1);
}
