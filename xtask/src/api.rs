//! Measures the public API of the library crates from rustdoc's JSON output.
//!
//! ```text
//! cargo xtask api           # the counts, and each finding
//! ```
//!
//! It prints the items at the root of `endstop`, names that two different types share, functions
//! whose error is a string, and public items without documentation. The JSON output needs no
//! nightly compiler: `RUSTC_BOOTSTRAP` enables it for rustdoc alone, so that dependencies are not
//! compiled again. If rustdoc does not write the expected format, the task skips with a notice.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that users meet.
const CRATES: [&str; 4] = ["endstop", "endstop-core", "endstop-process", "endstop-wire"];
/// Versions of the JSON format in which the fields used here have the same meaning.
const FORMATS: std::ops::RangeInclusive<u64> = 45..=60;
/// Kinds of items whose name may have only one meaning.
const TYPES: [&str; 4] = ["struct", "enum", "trait", "type_alias"];
/// The variable that makes this program run rustdoc instead.
const INNER: &str = "ENDSTOP_XTASK_RUSTDOC";

type Crates = BTreeMap<String, Value>;

/// Runs rustdoc with JSON output if cargo started this program in its place.
pub(crate) fn as_rustdoc() -> Option<i32> {
    std::env::var_os(INNER)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut rustdoc = Command::new("rustdoc");
    rustdoc.args(&args);
    // Questions about the version have no crate.
    if args.iter().any(|arg| arg == "--crate-name") {
        rustdoc.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--output-format=json"]);
    }
    Some(rustdoc.status().ok().and_then(|status| status.code()).unwrap_or(1))
}

pub(crate) fn run() -> Result<(), String> {
    let Some(crates) = documented()? else {
        println!("api: skipped, because this rustdoc writes another JSON format");
        return Ok(());
    };
    let mut found = Found { crates: &crates, items: BTreeMap::new() };
    for (name, krate) in &crates {
        let root = &krate["index"][id(&krate["root"])];
        found.module(krate, root, std::slice::from_ref(name), &BTreeSet::new());
    }
    let at_root = |paths: &BTreeSet<Vec<String>>| {
        paths.iter().any(|path| path.len() == 2 && path[0] == "endstop")
    };
    let root: Vec<&Item> =
        found.items.iter().filter(|(_, paths)| at_root(paths)).map(|(item, _)| item).collect();
    println!("items at the root of endstop: {}", root.len());
    for item in root {
        println!("    {}", item.path.join("::"));
    }
    print("names with more than one meaning", &found.duplicates());
    let (mut strings, mut undocumented) = (Vec::new(), Vec::new());
    for krate in crates.values() {
        for item in krate["index"].as_object().into_iter().flat_map(Map::values) {
            if item["crate_id"] == 0 {
                strings.extend(string_error(item).then(|| place(item)));
                undocumented.extend(is_undocumented(item).then(|| place(item)));
            }
        }
    }
    print("public functions with an error that is a string", &strings);
    print("public items without documentation", &undocumented);
    Ok(())
}

fn print(what: &str, findings: &[String]) {
    println!("{what}: {}", findings.len());
    for finding in findings {
        println!("    {finding}");
    }
}

/// Documents the crates and returns their JSON, or `None` if its format is not a known one.
fn documented() -> Result<Option<Crates>, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut cargo = Command::new("cargo");
    cargo.args(["doc", "--locked", "--no-deps", "--all-features", "--quiet"]);
    for name in CRATES {
        cargo.args(["-p", name]);
    }
    let status = cargo.env("RUSTDOC", myself).env(INNER, "1").status();
    if !status.map_err(|error| format!("cargo: {error}"))?.success() {
        return Err("cargo doc failed".to_owned());
    }
    let mut crates = Crates::new();
    for name in CRATES.map(|name| name.replace('-', "_")) {
        let Some(krate) = read(&target.join("doc").join(format!("{name}.json")))? else {
            return Ok(None);
        };
        crates.insert(name, krate);
    }
    Ok(Some(crates))
}

fn read(path: &Path) -> Result<Option<Value>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let krate: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let known = krate["format_version"].as_u64().is_some_and(|format| FORMATS.contains(&format));
    Ok(known.then_some(krate))
}

/// An item by the path of its definition.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    path: Vec<String>,
    kind: String,
}

struct Found<'a> {
    crates: &'a Crates,
    /// The public paths of each item.
    items: BTreeMap<Item, BTreeSet<Vec<String>>>,
}

impl<'a> Found<'a> {
    /// Adds the public items of a module, which is visible as `at`. `seen` has the modules that
    /// are open, because modules can re-export each other.
    fn module(&mut self, krate: &Value, module: &Value, at: &[String], seen: &BTreeSet<String>) {
        let items = module["inner"]["module"]["items"].as_array();
        for item in items.into_iter().flatten().map(|item| &krate["index"][id(item)]) {
            let Some((kind, inner)) =
                item["inner"].as_object().and_then(|inner| inner.iter().next())
            else {
                continue;
            };
            if kind == "use" {
                self.import(krate, inner, at, seen);
            } else if item["visibility"] == "public"
                && let Some(name) = item["name"].as_str()
            {
                let path = [at, &[name.to_owned()]].concat();
                if kind == "module" {
                    self.module(krate, item, &path, seen);
                } else {
                    let defined = path_of(krate, &id(&item["id"])).unwrap_or_else(|| path.clone());
                    self.add(kind, defined, path);
                }
            }
        }
    }

    fn import(&mut self, krate: &Value, import: &Value, at: &[String], seen: &BTreeSet<String>) {
        let target = id(&import["id"]);
        let mut path = at.to_vec();
        if import["is_glob"] != true {
            path.extend(import["name"].as_str().map(str::to_owned));
        }
        let item = &krate["index"][&target];
        let Some(defined) = path_of(krate, &target) else { return };
        let is_module = krate["paths"][&target]["kind"] == "module";
        if !is_module {
            let kind = krate["paths"][&target]["kind"].as_str().unwrap_or_default().to_owned();
            self.add(&kind, defined, path);
        } else if !seen.contains(&defined.join("::")) {
            let seen = seen.iter().cloned().chain([defined.join("::")]).collect();
            if item.is_object() {
                self.module(krate, item, &path, &seen);
            } else if let Some((other, module)) = self.elsewhere(&defined) {
                self.module(other, module, &path, &seen);
            }
        }
    }

    /// Returns a module of another of the crates, with that crate.
    fn elsewhere(&self, path: &[String]) -> Option<(&'a Value, &'a Value)> {
        let (name, inner) = path.split_first()?;
        let krate = self.crates.get(name)?;
        let mut module = &krate["index"][id(&krate["root"])];
        for name in inner {
            let items = module["inner"]["module"]["items"].as_array()?;
            module = items.iter().map(|item| &krate["index"][id(item)]).find(|item| {
                item["name"] == name.as_str() && item["inner"]["module"].is_object()
            })?;
        }
        Some((krate, module))
    }

    fn add(&mut self, kind: &str, defined: Vec<String>, path: Vec<String>) {
        let item = Item { path: defined, kind: kind.to_owned() };
        self.items.entry(item).or_default().insert(path);
    }

    /// Returns the names that more than one type has, with their paths.
    fn duplicates(&self) -> Vec<String> {
        let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for item in self.items.keys().filter(|item| TYPES.contains(&item.kind.as_str())) {
            if let Some(name) = item.path.last() {
                by_name.entry(name).or_default().push(item.path.join("::"));
            }
        }
        let twice = by_name.into_iter().filter(|(_, paths)| paths.len() > 1);
        twice.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect()
    }
}

/// Returns an id as a key of the index.
fn id(value: &Value) -> String {
    value.to_string()
}

fn path_of(krate: &Value, id: &str) -> Option<Vec<String>> {
    let path = krate["paths"][id]["path"].as_array()?;
    Some(path.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Returns the name and the place of an item.
fn place(item: &Value) -> String {
    let (file, line) = (&item["span"]["filename"], &item["span"]["begin"][0]);
    let name = item["name"].as_str().unwrap_or("?");
    format!("{name} at {}:{line}", file.as_str().unwrap_or("?"))
}

/// `true` for a function or an associated error type whose error is a string.
fn string_error(item: &Value) -> bool {
    let inner = &item["inner"];
    let output = &inner["function"]["sig"]["output"];
    let is_error = matches!(item["name"].as_str(), Some("Err" | "Error"));
    fails_with_string(output) || (is_error && is_string(&inner["assoc_type"]["type"]))
}

/// `true` if a type is, or contains, a `Result` with an error that is a string.
fn fails_with_string(kind: &Value) -> bool {
    let path = &kind["resolved_path"];
    let arguments = path["args"]["angle_bracketed"]["args"].as_array();
    let types: Vec<&Value> = arguments.into_iter().flatten().map(|one| &one["type"]).collect();
    let is_result = path["path"].as_str().is_some_and(|path| path.ends_with("Result"));
    let fails = is_result && types.len() == 2 && is_string(types[1]);
    fails || types.into_iter().any(fails_with_string)
}

fn is_string(kind: &Value) -> bool {
    let name = kind["resolved_path"]["path"].as_str().unwrap_or_default();
    name.rsplit("::").next() == Some("String") || kind["borrowed_ref"]["type"]["primitive"] == "str"
}

/// `true` for a public item of its own without documentation.
fn is_undocumented(item: &Value) -> bool {
    let kinds = ["impl", "use", "assoc_type"];
    let is_part = kinds.iter().any(|kind| item["inner"][kind].is_object());
    item["docs"].is_null() && item["visibility"] == "public" && !is_part
}
