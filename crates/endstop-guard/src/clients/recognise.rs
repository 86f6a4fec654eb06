//! Recognises a client in a command line.
//!
//! ```text
//! npx -y @openai/codex@latest exec TASK      codex, arguments from `exec`
//! env -u X A=1 python3 -m aider --message M  aider, arguments from `--message`
//! ```

use super::command::Command;
use super::table::{CLIENTS, Client};
use std::ffi::OsString;

/// Options of `node` and of similar programs that have a value.
const NODE_VALUES: [&str; 7] =
    ["-r", "--require", "--import", "--loader", "-C", "--conditions", "--env-file"];

/// Options of Python that have a value.
const PYTHON_VALUES: [&str; 3] = ["-X", "-W", "--check-hash-based-pycs"];

/// Options of package runners that name the package.
const PACKAGE: [&str; 4] = ["-p", "--package", "--from", "--spec"];

/// Options of package runners that have another value.
const RUNNER_VALUES: [&str; 4] = ["--python", "--with", "--index-url", "--registry"];

/// Finds the client that a command starts.
pub(super) fn recognise(words: &[OsString]) -> (Option<&'static Client>, Command) {
    let text: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command =
        Command { words: words.to_vec(), after: 1.min(words.len()), ..Command::default() };
    let mut at = 0;
    let found = loop {
        let Some(word) = text.get(at) else { break None };
        let name = base_name(word);
        let next = match name {
            "env" => env(&text, at, &mut command),
            "nohup" | "time" | "command" | "exec" | "caffeinate" | "setsid" => {
                operand(&text, at + 1, &[])
            }
            "nice" | "ionice" | "stdbuf" => operand(&text, at + 1, &["-n", "-c", "-o", "-e", "-i"]),
            // The first operand of `timeout` is the time.
            "timeout" => operand(&text, at + 1, &["-s", "-k", "--signal", "--kill-after"])
                .and_then(|time| operand(&text, time + 1, &[])),
            // Their default is a new environment.
            "sudo" | "doas" => {
                command.cleared_by = Some(name.to_owned());
                operand(&text, at + 1, &["-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T"])
            }
            _ => break program(&text, at),
        };
        match next {
            Some(next) => at = next,
            None => break None,
        }
    };
    let Some((client, after)) = found else { return (None, command) };
    command.after = after;
    (Some(client), command)
}

/// Words that make any program describe itself, if they are its only argument.
const DESCRIBES: [&str; 4] = ["--version", "-V", "--help", "-h"];

/// `true` if a command makes no run: the program shows its version, logs in, or changes its configuration.
pub(super) fn makes_no_run(client: Option<&'static Client>, command: &Command) -> bool {
    let text: Vec<_> = command.words.iter().map(|word| word.to_string_lossy()).collect();
    let Some(client) = client else {
        return matches!(&text[..], [_, word] if DESCRIBES.contains(&&**word));
    };
    let is_listed = |word: &str| client.no_run.contains(&word);
    let mut words = text[command.after.min(text.len())..].iter();
    while let Some(word) = words.next() {
        match &**word {
            // What follows is a task.
            "--" => return false,
            word if is_listed(word.split('=').next().unwrap_or(word)) => return true,
            word if client.valued.contains(&word) => drop(words.next()),
            word if word.starts_with('-') => {}
            // The first operand is a subcommand or the task.
            _ => break,
        }
    }
    // Options that only describe the program count behind a task, too.
    words.take_while(|word| **word != "--").any(|word| word.starts_with('-') && is_listed(word))
}

/// Returns the client that the program at this index is or runs, and the index of its arguments.
fn program(text: &[String], at: usize) -> Option<(&'static Client, usize)> {
    let name = base_name(&text[at]);
    let by_name = |name: &str| CLIENTS.iter().find(|client| client.programs.contains(&name));
    if let Some(client) = by_name(name) {
        return Some((client, at + 1));
    }
    let is_python = name
        .strip_prefix("python")
        .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'));
    match name {
        "npx" | "bunx" | "pnpx" | "uvx" => package(text, at + 1),
        "npm" | "pnpm" | "yarn" | "bun" | "uv" | "pipx" => {
            let sub = operand(text, at + 1, &[])?;
            match text[sub].as_str() {
                "exec" | "dlx" | "x" => package(text, sub + 1),
                // `uv tool run PACKAGE`
                "tool" => package(text, operand(text, sub + 1, &[])? + 1),
                "run" if name == "pipx" => package(text, sub + 1),
                "run" => program(text, operand(text, sub + 1, &RUNNER_VALUES)?),
                _ => script(text, sub),
            }
        }
        "node" | "nodejs" | "deno" | "tsx" => script(text, operand(text, at + 1, &NODE_VALUES)?),
        _ if is_python || name == "py" => python(text, at + 1),
        _ => script(text, at),
    }
}

/// Returns the client that Python runs.
fn python(text: &[String], mut at: usize) -> Option<(&'static Client, usize)> {
    loop {
        let word = text.get(at)?.as_str();
        if let Some(attached) = word.strip_prefix("-m") {
            let (module, after) = if attached.is_empty() {
                (text.get(at + 1)?.as_str(), at + 2)
            } else {
                (attached, at + 1)
            };
            let module = module.strip_suffix(".__main__").unwrap_or(module);
            let client = CLIENTS.iter().find(|client| client.modules.contains(&module))?;
            return Some((client, after));
        }
        match word {
            // A program in the command line itself.
            "-c" => return None,
            word if PYTHON_VALUES.contains(&word) => at += 2,
            word if word.starts_with('-') => at += 1,
            _ => return script(text, at),
        }
    }
}

/// Returns the client that a package runner starts, such as `npx -y @openai/codex@latest`.
fn package(text: &[String], from: usize) -> Option<(&'static Client, usize)> {
    let mut at = from;
    let mut named = None;
    loop {
        let word = text.get(at)?.as_str();
        if word == "--" {
            at += 1;
        } else if let Some((option, value)) =
            word.split_once('=').filter(|(o, _)| o.starts_with('-'))
        {
            if PACKAGE.contains(&option) {
                named = by_package(value);
            }
            at += 1;
        } else if PACKAGE.contains(&word) {
            named = text.get(at + 1).and_then(|name| by_package(name));
            at += 2;
        } else if RUNNER_VALUES.contains(&word) {
            at += 2;
        } else if word.starts_with('-') {
            at += 1;
        } else {
            let client = by_package(word)
                .or_else(|| CLIENTS.iter().find(|client| client.programs.contains(&word)));
            return client.or(named).map(|client| (client, at + 1));
        }
    }
}

/// Returns the client of a package name with or without a version.
fn by_package(name: &str) -> Option<&'static Client> {
    // The first `@` of a scoped name is not that of a version.
    let start = usize::from(name.starts_with('@'));
    let end = name[start..].find(['@', '=', '[']).map_or(name.len(), |at| start + at);
    let name = &name[..end];
    CLIENTS.iter().find(|client| client.packages.contains(&name))
}

/// Returns the client whose file a path is: `…/node_modules/PACKAGE/…` or a script with its name.
fn script(text: &[String], at: usize) -> Option<(&'static Client, usize)> {
    let path = text.get(at)?.replace('\\', "/");
    let in_package = CLIENTS.iter().find(|client| {
        client.packages.iter().any(|package| path.contains(&format!("/node_modules/{package}/")))
    });
    let name = base_name(&path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    // A script of the user may have any name with an ending, so only `claude` itself counts.
    let is_script = stem == name;
    let by_name = CLIENTS.iter().find(|client| is_script && client.programs.contains(&stem));
    in_package.or(by_name).map(|client| (client, at + 1))
}

/// Reads the options and the assignments of `env`. Returns the index of the program.
fn env(text: &[String], at: usize, command: &mut Command) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let word = text.get(at)?.as_str();
        match word {
            "-i" | "-" | "--ignore-environment" => {
                command.cleared_by = Some(format!("env {word}"));
                at += 1;
            }
            "-u" | "--unset" | "-C" | "--chdir" => at += 2,
            word if word.starts_with('-') => at += 1,
            word => match word.split_once('=') {
                Some((name, value)) => {
                    command.assignments.push((at, name.to_owned(), value.to_owned()));
                    at += 1;
                }
                None => return Some(at),
            },
        }
    }
}

/// Returns the index of the first word that is not an option.
fn operand(text: &[String], from: usize, with_value: &[&str]) -> Option<usize> {
    let mut at = from;
    loop {
        let word = text.get(at)?.as_str();
        match word {
            "--" => return (at + 1 < text.len()).then_some(at + 1),
            word if with_value.contains(&word) => at += 2,
            word if word.starts_with('-') && word.len() > 1 => at += 1,
            _ => return Some(at),
        }
    }
}

/// Returns the last part of a path, without the endings of programs on Windows.
fn base_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    [".exe", ".cmd", ".ps1"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}
