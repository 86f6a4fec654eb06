//! `cargo xtask arrows`: counts import circles between files, imports that point up between the folders
//! of a crate, and files that call back into a file that called them. It fails if there are more than
//! `xtask/arrows.json` allows, and if a folder has more than 20 source files.
//!
//! A file imports another if it names an item that the other defines, through `use` or by a path, also
//! through re-exports. Tests inside a file are left out, because they may use everything. Folders and
//! files directly below `src` are rooms. The rooms are put into the order in which the fewest imports
//! point from a lower room to a higher one; those are counted. If there is no circle between rooms,
//! none is left.
//!
//! A call of a function needs an import, so a circle of calls without a circle of imports can only go
//! through a method that lies in another file than its type. A file can call such a method if its
//! imports lead to the type, because a value of a type that no import leads to cannot occur in it. So
//! a file calls the file of a method `name` of the type `T` if it contains `.name(` or `T::name`, and if
//! its imports lead to `T`. This may count too much, because another type has a method of the
//! same name. Methods of traits, closures and macros are left out: a trait exists so that its
//! implementations are called back.

use crate::source::{Module, parse};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// The recorded numbers: a crate with its circles and its arrows that point up.
const RECORD: &str = "xtask/arrows.json";

/// Number of source files in a folder, without its subfolders, from which on it is searched and no longer read.
const MOST_FILES: usize = 20;

/// Runs the task. `--write` records the numbers as they are; `--list` names each circle and arrow.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let write = args.iter().any(|arg| arg == "--write");
    let list = args.iter().any(|arg| arg == "--list");
    if let Some(other) = args.iter().find(|arg| !["--write", "--list"].contains(&arg.as_str())) {
        return Err(format!("unknown argument `{other}`; expected --list or --write"));
    }
    let recorded = fs::read_to_string(RECORD).unwrap_or_else(|_| "{}".to_owned());
    let recorded: Value =
        serde_json::from_str(&recorded).map_err(|error| format!("{RECORD}: {error}"))?;
    let mut now = serde_json::Map::new();
    let mut worse = Vec::new();
    println!(
        "{:<24}{:>7}{:>10}{:>9}{:>4}{:>7}",
        "crate", "files", "imports", "circles", "up", "calls"
    );
    for name in crates()? {
        let graph = Graph::read(&Path::new("crates").join(&name).join("src"))?;
        let circles = graph.circles();
        let up = graph.arrows_up();
        let calls = graph.call_circles();
        let files = graph.files.len();
        worse.extend(graph.crowded(&name));
        println!(
            "{name:<24}{files:>7}{:>10}{:>9}{:>4}{:>7}",
            graph.imports.len(),
            circles.len(),
            up.len(),
            calls.concat().len()
        );
        if list {
            for circle in &circles {
                println!("  circle: {}", circle.join(" · "));
            }
            for (from, to) in &up {
                println!("  up: {from} -> {to}");
            }
            for circle in &calls {
                println!("  calls, {} files: {}", circle.len(), circle.join(" · "));
                let inside = |file: &String| circle.contains(file);
                for (from, to) in graph.calls.iter().filter(|(a, b)| inside(a) && inside(b)) {
                    println!("    {from} calls a method in {to}");
                }
            }
        }
        let calls = calls.concat().len();
        let counts = [("circles", circles.len()), ("up", up.len()), ("calls", calls)];
        for (what, count) in counts {
            let most = recorded[&name][what].as_u64().unwrap_or(0);
            if count as u64 > most {
                worse.push(format!("{name}: {count} {what}, {most} recorded in {RECORD}"));
            }
        }
        let counts = counts.map(|(what, count)| (what.to_owned(), Value::from(count)));
        now.insert(name, Value::Object(counts.into_iter().collect()));
    }
    if write {
        let text = format!("{:#}\n", Value::Object(now));
        return fs::write(RECORD, text).map_err(|error| format!("{RECORD}: {error}"));
    }
    if worse.is_empty() {
        return Ok(());
    }
    worse.push("list them by `cargo xtask arrows --list`".to_owned());
    Err(worse.join("\n"))
}

fn crates() -> Result<Vec<String>, String> {
    let entries = fs::read_dir("crates").map_err(|error| format!("crates: {error}"))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("src").is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

struct Graph {
    files: BTreeSet<String>,
    imports: BTreeSet<(String, String)>,
    /// A file that may call a method that lies in another file than its type, and the file of the
    /// method.
    calls: BTreeSet<(String, String)>,
}

impl Graph {
    fn read(src: &Path) -> Result<Graph, String> {
        let mut modules = BTreeMap::new();
        for file in rust_files(src)? {
            let relative = file.strip_prefix(src).unwrap_or(&file);
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let module = parse(relative.to_string_lossy().into_owned(), &text);
            modules.insert(module_path(relative), module);
        }
        let mut imports = BTreeSet::new();
        for (at, module) in &modules {
            let named = module.uses.iter().map(|(_, path)| path).chain(&module.paths);
            for path in named.chain(&module.globs) {
                if let Some(file) = resolve(&modules, at, path, 0)
                    && file != module.file
                {
                    imports.insert((module.file.clone(), file));
                }
            }
        }
        let files = modules.values().map(|module| module.file.clone()).collect();
        let calls = method_calls(&modules, &imports);
        Ok(Graph { files, imports, calls })
    }

    /// Describes the folders with too many source files.
    fn crowded(&self, name: &str) -> Vec<String> {
        let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
        for file in &self.files {
            *folders.entry(Path::new(file).parent().unwrap_or(Path::new(""))).or_default() += 1;
        }
        folders.retain(|_, files| *files > MOST_FILES);
        let describe = |(folder, files): (&Path, usize)| {
            let folder = Path::new(name).join("src").join(folder);
            format!("{}: {files} files, at most {MOST_FILES}: group them by idea", folder.display())
        };
        folders.into_iter().map(describe).collect()
    }

    /// Groups of files that call one another, by functions or by methods outside of the file of
    /// their type.
    fn call_circles(&self) -> Vec<Vec<String>> {
        let files: Vec<&str> = self.files.iter().map(String::as_str).collect();
        let edges = self.imports.iter().chain(&self.calls);
        strong(&files, edges.map(|(from, to)| (from.as_str(), to.as_str())))
    }

    /// Groups of files that import one another, directly or through others.
    fn circles(&self) -> Vec<Vec<String>> {
        let files: Vec<&String> = self.files.iter().collect();
        let edges = self.imports.iter().map(|(from, to)| (from.as_str(), to.as_str()));
        strong(&files.iter().map(|file| file.as_str()).collect::<Vec<_>>(), edges)
    }

    /// Imports that point from a lower room to a higher one in the best order of the rooms.
    fn arrows_up(&self) -> Vec<(String, String)> {
        let rooms: BTreeSet<&str> = self.files.iter().map(|file| room(file)).collect();
        let rooms: Vec<&str> = rooms.into_iter().collect();
        let mut weight: HashMap<(&str, &str), usize> = HashMap::new();
        for (from, to) in &self.imports {
            if room(from) != room(to) {
                *weight.entry((room(from), room(to))).or_default() += 1;
            }
        }
        let mut up = Vec::new();
        for group in strong(&rooms, weight.keys().copied()) {
            let order = best_order(&group, &weight);
            let floor = |file: &str| order.iter().position(|name| name == room(file));
            for (from, to) in &self.imports {
                // The first of the order is the highest.
                if let (Some(a), Some(b)) = (floor(from), floor(to))
                    && a > b
                {
                    up.push((from.clone(), to.clone()));
                }
            }
        }
        up
    }
}

/// The calls of methods that lie in another file than their type, see the head of this file.
fn method_calls(
    modules: &BTreeMap<Vec<String>, Module>,
    imports: &BTreeSet<(String, String)>,
) -> BTreeSet<(String, String)> {
    let mut calls = BTreeSet::new();
    for (at, module) in modules {
        for (kind, method) in &module.methods {
            // A type that the file defines itself is not among its imports.
            if module.items.contains(kind) {
                continue;
            }
            let imported = module.uses.iter().find(|(local, _)| local == kind);
            let imported = imported.map(|(_, path)| path);
            let named = || module.paths.iter().find(|path| path.last() == Some(kind));
            let defined = imported.or_else(named).and_then(|path| resolve(modules, at, path, 0));
            let Some(defined) = defined else { continue };
            let leads = leads_to(&defined, imports);
            for caller in modules.values() {
                if caller.called.contains(method)
                    && caller.file != module.file
                    && leads.contains(caller.file.as_str())
                {
                    calls.insert((caller.file.clone(), module.file.clone()));
                }
            }
        }
    }
    calls
}

/// The files whose imports lead to a file, with the file itself.
fn leads_to<'a>(file: &'a str, imports: &'a BTreeSet<(String, String)>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::from([file]);
    loop {
        let more: Vec<&str> = imports
            .iter()
            .filter(|(from, to)| found.contains(to.as_str()) && !found.contains(from.as_str()))
            .map(|(from, _)| from.as_str())
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The folder directly below `src` that a file lies in, or the file itself.
fn room(file: &str) -> &str {
    let name = file.split('/').next().unwrap_or(file);
    name.strip_suffix(".rs").unwrap_or(name)
}

/// The order in which the fewest imports point up: each room is moved to where it costs least until
/// nothing improves. Groups are small, so this finds the least in practice.
fn best_order(group: &[String], weight: &HashMap<(&str, &str), usize>) -> Vec<String> {
    let cost = |order: &[String]| {
        let mut sum = 0;
        for (low, lower) in order.iter().enumerate() {
            for higher in &order[..low] {
                sum += weight.get(&(lower.as_str(), higher.as_str())).copied().unwrap_or(0);
            }
        }
        sum
    };
    let mut best = group.to_vec();
    let mut least = cost(&best);
    loop {
        let mut improved = false;
        for from in 0..best.len() {
            for to in 0..best.len() {
                let mut order = best.clone();
                let moved = order.remove(from);
                order.insert(to, moved);
                let sum = cost(&order);
                if sum < least {
                    (best, least, improved) = (order, sum, true);
                }
            }
        }
        if !improved {
            return best;
        }
    }
}

/// The groups of more than one node of which each reaches each.
fn strong<'a>(
    nodes: &[&'a str],
    edges: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<Vec<String>> {
    let mut out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        out.entry(from).or_default().push(to);
    }
    let reach = |start: &'a str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(node) = open.pop() {
            for next in out.get(node).into_iter().flatten() {
                if seen.insert(*next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        nodes.iter().map(|node| (*node, reach(node))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for node in nodes {
        let group: Vec<String> = nodes
            .iter()
            .filter(|other| reached[node].contains(**other) && reached[**other].contains(node))
            .map(|other| (*other).to_owned())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn module_path(file: &Path) -> Vec<String> {
    let mut path: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The file that defines the item at the end of a path, seen from a module.
fn resolve(
    modules: &BTreeMap<Vec<String>, Module>,
    at: &[String],
    path: &[String],
    depth: usize,
) -> Option<String> {
    // Re-exports can form a circle.
    if depth > 12 {
        return None;
    }
    let mut here = at.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            here.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                here.pop()?;
                rest = &rest[1..];
            }
        }
        _ => {}
    }
    let mut steps = 0;
    loop {
        let module = modules.get(&here)?;
        let Some(name) = rest.first() else { return Some(module.file.clone()) };
        let mut inner = here.clone();
        inner.push(name.clone());
        if modules.contains_key(&inner) {
            here = inner;
            rest = &rest[1..];
            steps += 1;
            continue;
        }
        if module.items.contains(name) {
            return Some(module.file.clone());
        }
        // A bare name is an item of another crate unless the module itself imports it.
        let relative = steps > 0 || path.len() != rest.len();
        for (local, target) in &module.uses {
            if local == name && (relative || depth > 0) && target != path {
                return resolve(modules, &here, target, depth + 1);
            }
        }
        if relative {
            for target in &module.globs {
                let mut longer = target.clone();
                longer.push(name.clone());
                if let Some(found) = resolve(modules, &here, &longer, depth + 1) {
                    return Some(found);
                }
            }
        }
        return None;
    }
}

#[cfg(test)]
mod tests {
    use super::{Graph, Module, method_calls, parse};
    use std::collections::{BTreeMap, BTreeSet};

    fn graph(files: [(&str, &str); 3]) -> Graph {
        let module =
            |(name, text): (&str, &str)| (vec![name.to_owned()], parse(name.to_owned(), text));
        let mut modules: BTreeMap<Vec<String>, Module> = files.into_iter().map(module).collect();
        modules.insert(Vec::new(), Module::default());
        let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let imports = BTreeSet::from([edge("a", "state"), edge("b", "state")]);
        let files = BTreeSet::from(["a", "b", "state"].map(str::to_owned));
        let calls = method_calls(&modules, &imports);
        Graph { files, imports, calls }
    }

    #[test]
    fn methods_outside_their_type_call_back() {
        let state = ("state", "pub struct State;\nimpl State { pub fn own(&self) {} }");
        let a = "use super::state::State;\nimpl State { fn first(&mut self) { self.second() } }";
        let b = "use super::state::State;\nimpl State { fn second(&mut self) { self.first() } }";
        assert_eq!(graph([state, ("a", a), ("b", b)]).call_circles(), [["a", "b"]]);
        // Without the call back there is a direction.
        let b = "use super::state::State;\nimpl State { fn second(&mut self) { self.own() } }";
        assert!(graph([state, ("a", a), ("b", b)]).call_circles().is_empty());
        // The type's own file calls a method that lies in another file.
        let calls = "pub struct State;\nimpl State { fn own(&self) { State::first(self) } }";
        let found = graph([("state", calls), ("a", a), ("b", b)]).call_circles();
        assert_eq!(found, [["a", "b", "state"]]);
    }
}
