//! Reads fixtures whose encoding or JSON values are changed: no panic, no silent loss, and every run
//! that is read can be written, replayed and audited.

use crate::common::{Read, fixtures, read_bytes};
use endstop_trajectory::audit::{Audit, Session};
use endstop_trajectory::read::{Options, ProblemKind};
use endstop_trajectory::replay::{Setting, replay};
use endstop_trajectory::{Origin, Prices, Trajectory, write};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;

/// The fixtures that are text: name and content.
fn texts() -> Vec<(String, String)> {
    fixtures()
        .into_iter()
        .filter(|path| path.metadata().unwrap().len() < 300_000)
        .filter_map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            Some((name, String::from_utf8(fs::read(path).unwrap()).ok()?))
        })
        .collect()
}

fn read(name: &str, bytes: impl Into<Vec<u8>>) -> Read {
    read_bytes(name, bytes, &Options::default())
}

fn bare(mut run: Trajectory<'static>) -> Trajectory<'static> {
    run.origin = Origin::default();
    run.children = run.children.into_iter().map(bare).collect();
    run
}

fn without_origin(runs: Vec<Trajectory<'static>>) -> Vec<Trajectory<'static>> {
    runs.into_iter().map(bare).collect()
}

/// Checks what holds for every run, whatever its file contains.
fn check(run: Trajectory<'static>, what: &str) {
    fn arguments(run: &Trajectory<'_>, what: &str) {
        for call in run.steps.iter().flat_map(|step| &step.calls) {
            let value: Value = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|e| panic!("{what}: {e}: {}", call.arguments));
            assert!(value.is_object() || value.is_string(), "{what}: {}", call.arguments);
            assert!(!call.arguments.contains('\n'), "{what}: {}", call.arguments);
        }
        run.children.iter().for_each(|child| arguments(child, what));
    }
    arguments(&run, what);
    assert!(!run.run_id.is_empty(), "{what}: a run without an id");
    replay(&run, &Setting::default()).unwrap();
    let session = Session::of(&run, &Prices::new());
    let mut audit = Audit::new(1);
    audit.add(session);
    assert_eq!(audit.sessions, 1, "{what}");
    let mut line = Vec::new();
    write::atif(&run, &mut line).unwrap();
    let (mut again, problems) = read("again.json", line.clone());
    let text = || String::from_utf8_lossy(&line).into_owned();
    assert_eq!(problems, [], "{what}: {}", text());
    assert_eq!(bare(again.remove(0)), bare(run), "{what}: {}", text());
}

#[test]
fn encodings_give_the_same_runs() {
    type Encode = fn(&str) -> Vec<u8>;
    let gzip: Encode = |text| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    let ways: &[(&str, Encode)] = &[
        ("byte order mark", |text| format!("\u{feff}{text}").into()),
        ("CRLF", |text| text.replace('\n', "\r\n").into()),
        ("byte order mark and CRLF", |text| {
            format!("\u{feff}{}", text.replace('\n', "\r\n")).into()
        }),
        ("blank lines at the end", |text| format!("{text}\n\n \r\n\t\n").into()),
        ("no line break at the end", |text| text.trim_end().into()),
        ("gzip", gzip),
        ("zstd", |text| zstd::encode_all(text.as_bytes(), 1).unwrap()),
    ];
    for (name, text) in texts() {
        let (want, problems) = read(&name, text.clone());
        for (way, encode) in ways {
            let (runs, found) = read(&name, encode(&text));
            assert_eq!(without_origin(runs), without_origin(want.clone()), "{name}: {way}");
            assert_eq!(found.len(), problems.len(), "{name}: {way}: {found:?}");
        }
    }
}

#[test]
fn other_character_sets_are_reported() {
    for (name, text) in texts() {
        let wide = |to: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(to).collect::<Vec<u8>>();
        let little = [&b"\xff\xfe"[..], &wide(u16::to_le_bytes)].concat();
        let big = [&b"\xfe\xff"[..], &wide(u16::to_be_bytes)].concat();
        for (set, bytes) in [("UTF-16LE", little), ("UTF-16BE", big)] {
            let (runs, problems) = read(&name, bytes);
            assert!(runs.is_empty() && problems.len() == 1, "{name}: {set}: {problems:?}");
            assert_eq!(problems[0].kind, ProblemKind::NoTrajectory, "{name}: {set}");
        }
        if read(&name, text.clone()).0.is_empty() {
            continue;
        }
        // A byte of Latin-1 inside a string is valid in no line and in no document.
        let Some(quote) = text.rfind("\": \"").or_else(|| text.rfind("\":\"")) else { continue };
        let at = quote + text[quote..].rfind('"').unwrap();
        let mut bytes = text.clone().into_bytes();
        bytes.insert(at, 0xe9);
        let (_, problems) = read(&name, bytes);
        let found = problems.iter().any(|problem| problem.what.contains("UTF-8"));
        assert!(found, "{name}: {problems:?}");
    }
}

/// A path to a value: names and indices.
type Path = Vec<String>;

fn paths(value: &Value, here: &mut Path, found: &mut Vec<Path>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
        // The first elements and the last one have the shapes of the others.
        Value::Array(list) => {
            let last = list.len().saturating_sub(1);
            let near = list.iter().enumerate().filter(|(i, _)| *i < 3 || *i == last);
            near.map(|(i, value)| (i.to_string(), value)).collect()
        }
        _ => return,
    };
    for (name, child) in children {
        here.push(name);
        found.push(here.clone());
        paths(child, here, found);
        here.pop();
    }
}

fn at<'v>(value: &'v mut Value, path: &[String]) -> &'v mut Value {
    path.iter().fold(value, |value, name| match value {
        Value::Array(list) => &mut list[name.parse::<usize>().unwrap()],
        value => &mut value[name.as_str()],
    })
}

/// The values of a file: its lines, or the document.
fn values(text: &str) -> Option<Vec<Value>> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    values.collect::<Result<_, _>>().ok()
}

fn joined(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// Applies a change to each of up to `most` places of each JSON fixture, and checks all runs.
fn each_change(most: usize, changes: &[(&str, &dyn Fn(&mut Value, &[String]))]) {
    for (name, text) in texts() {
        let Some(whole) = values(&text) else { continue };
        let mut places = Vec::new();
        for (i, value) in whole.iter().enumerate() {
            let mut found = Vec::new();
            paths(value, &mut Path::new(), &mut found);
            places.extend(found.into_iter().map(|path| (i, path)));
        }
        let step = places.len() / most + 1;
        for (nth, (i, path)) in places.iter().enumerate().filter(|(nth, _)| nth % step == 0) {
            let (how, change) = &changes[nth / step % changes.len()];
            let mut values = whole.clone();
            change(&mut values[*i], path);
            let what = format!("{name}: {how} at {}/{}", i, path.join("/"));
            let (runs, problems) = read(&name, joined(&values));
            assert!(!runs.is_empty() || !problems.is_empty(), "{what}: lost in silence");
            for problem in problems {
                assert!(!problem.what.is_empty() && problem.file == name, "{what}: {problem}");
            }
            runs.into_iter().for_each(|run| check(run, &what));
        }
    }
}

fn set(to: Value) -> impl Fn(&mut Value, &[String]) {
    move |value, path| *at(value, path) = to.clone()
}

#[test]
fn wrong_types_do_not_break_runs() {
    let many: Value = (0..40).collect::<Vec<u64>>().into();
    each_change(
        15,
        &[
            ("null", &set(Value::Null)),
            ("true", &set(json!(true))),
            ("a number", &set(json!(7))),
            ("a string", &set(json!("x\n\u{0}\u{1f600}"))),
            ("an empty string", &set(json!(""))),
            ("an empty list", &set(json!([]))),
            ("an empty object", &set(json!({}))),
            ("a list of lists", &set(json!([[[]], {"a": [1]}]))),
            ("a list of numbers", &set(many)),
            ("an object of its own kind", &set(json!({"type": "text", "text": "t", "id": 1}))),
        ],
    );
}

#[test]
fn extreme_numbers_do_not_break_runs() {
    each_change(
        15,
        &[
            ("the largest u64", &set(json!(u64::MAX))),
            ("the least i64", &set(json!(i64::MIN))),
            ("a huge float", &set(json!(1e308))),
            ("a tiny float", &set(json!(5e-324))),
            ("minus zero", &set(json!(-0.0))),
            ("a fraction", &set(json!(0.1))),
            ("-1", &set(json!(-1))),
            ("2^53", &set(json!(9_007_199_254_740_993_u64))),
            ("digits in a string", &set(json!("18446744073709551616"))),
        ],
    );
}

#[test]
fn changed_members_do_not_break_runs() {
    let parent = |value: &mut Value, path: &[String], change: &dyn Fn(&mut Value, &str)| {
        let (name, above) = path.split_last().unwrap();
        change(at(value, above), name);
    };
    let remove = |value: &mut Value, path: &[String]| {
        parent(value, path, &|holder, name| match holder {
            Value::Array(list) => drop(list.remove(name.parse().unwrap())),
            Value::Object(map) => drop(map.shift_remove(name)),
            _ => unreachable!(),
        });
    };
    let repeat = |value: &mut Value, path: &[String]| {
        parent(value, path, &|holder, name| match holder {
            Value::Array(list) => list.push(list[name.parse::<usize>().unwrap()].clone()),
            Value::Object(map) => {
                let copy = map[name].clone();
                map.insert(format!("{name}_2"), copy);
            }
            _ => unreachable!(),
        });
    };
    let reverse = |value: &mut Value, path: &[String]| {
        parent(value, path, &|holder, _| match holder {
            Value::Array(list) => list.reverse(),
            Value::Object(map) => *map = std::mem::take(map).into_iter().rev().collect(),
            _ => unreachable!(),
        });
    };
    let wrap = |value: &mut Value, path: &[String]| {
        let inner = at(value, path).take();
        *at(value, path) = json!([inner]);
    };
    let nest = |value: &mut Value, path: &[String]| {
        let mut deep = at(value, path).take();
        // Below the parser's limit of 128 also after the writer's own levels are added.
        for _ in 0..30 {
            deep = json!({"a": [deep]});
        }
        *at(value, path) = deep;
    };
    each_change(
        15,
        &[
            ("removed", &remove),
            ("repeated", &repeat),
            ("reversed", &reverse),
            ("in a list", &wrap),
            ("60 levels deeper", &nest),
        ],
    );
}

#[test]
fn doubled_files_do_not_break_runs() {
    for (name, text) in texts() {
        let (once, _) = read(&name, text.clone());
        let (twice, problems) = read(&name, format!("{}\n{text}", text.trim_end()));
        assert!(twice.len() >= once.len() || !problems.is_empty(), "{name}: lost in silence");
        twice.into_iter().for_each(|run| check(run, &name));
        if name.ends_with(".jsonl") {
            assert!(problems.iter().all(|problem| problem.kind != ProblemKind::Half), "{name}");
        }
    }
}
