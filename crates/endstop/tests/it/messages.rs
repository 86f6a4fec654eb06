//! Messages of the library name its own methods, and neither a flag nor a command of the program: a user of
//! the library has none. The command replaces the methods by its flags.

use std::fs;
use std::path::{Path, PathBuf};

/// Commands that a message could name, after `endstop`.
const COMMANDS: [&str; 10] = [
    "run", "runs", "explain", "pending", "answer", "serve", "guard", "replay", "audit", "backtest",
];

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|end| end == "rs") {
            out.push(path);
        }
    }
}

/// Returns what a line says of the program, if it is not a comment.
fn named(line: &str) -> Option<&str> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return None;
    }
    let flag = code.match_indices("--").find_map(|(at, _)| {
        let before = code[..at].chars().next_back();
        let rest = &code[at + 2..];
        let is_name = rest.starts_with(|c: char| c.is_ascii_lowercase());
        (is_name && before.is_none_or(|c| " `(\"".contains(c))).then_some(rest)
    });
    flag.or_else(|| {
        code.match_indices("`endstop ").find_map(|(at, found)| {
            let rest = &code[at + found.len()..];
            let word = rest.split(|c: char| !c.is_ascii_lowercase()).next()?;
            COMMANDS.contains(&word).then_some(rest)
        })
    })
}

#[test]
fn library_names_no_flag_of_the_command() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["endstop", "endstop-core", "endstop-wire", "endstop-http", "endstop-guest"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // Tests run commands of their own.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (line, code) in text.lines().enumerate() {
            if named(code).is_some() {
                found.push(format!("{}:{}: {}", file.display(), line + 1, code.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn flags_and_commands_are_found() {
    for line in ["\"set --price\"", "\"give `--price in=…`\"", "\"see `endstop runs`\""] {
        assert!(named(line).is_some(), "{line}");
    }
    for line in ["// pass --price", "a -- b", "x--;", "\"`endstop` is it\""] {
        assert!(named(line).is_none(), "{line}");
    }
}
