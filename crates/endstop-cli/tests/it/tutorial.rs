//! The commands of the first pages of the book, `docs/src/start`, run as they are printed.
//!
//! Each line of a block `sh` is a command of a shell; a trailing `# exits with N` gives its status. The block `text`
//! after it has lines of its output, in their order; numbers may differ, and `…` stands for any lines.

use crate::cli::{ANTHROPIC_KEY, Cli, OPENAI_KEY, Started, answering};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::json;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Commands that another test runs, or that install something.
const ELSEWHERE: [&str; 2] = ["cargo install", "cargo run -p programs"];

/// Answers as the pages need it: an agent with tools writes its notes, or counts without an end.
fn model() -> Server {
    answering(|request| {
        let said = request.body.to_string();
        let turn = if said.contains("Count the files") {
            Turn::call("shell", &json!({"command": format!("echo {}", request.number)}))
        } else if said.contains("facts") && !said.contains("bytes written") {
            let notes = json!({"path": "notes.txt", "content": "They are balanced."});
            Turn::call("write_file", &notes)
        } else {
            Turn::text("It is a balanced tree.")
        };
        Reply::turn(request, &turn.usage(100, 20))
    })
}

/// Returns the blocks of a page: the word after the fence, and the lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(word) = line.strip_prefix("```") {
            blocks.push((word, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

/// Returns the commands of a block, with lines that `\` continues joined.
fn commands(lines: &[&str]) -> Vec<String> {
    let text = lines.join("\n").replace("\\\n", " ");
    text.lines().map(str::to_owned).collect()
}

/// Returns a line with one `#` for each number, because numbers differ from run to run.
fn masked(line: &str) -> String {
    let mut masked = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            _ => masked.push(c),
        }
    }
    masked
}

/// Asserts that an output has these lines, in their order.
fn assert_shows(output: &str, lines: &[&str], at: &str) {
    let mut rest = output.lines();
    for line in lines.iter().filter(|line| **line != "…") {
        let expected = masked(line);
        assert!(
            rest.any(|line| masked(line).trim_end() == expected),
            "{at}: no line `{line}` in\n{output}"
        );
    }
}

#[test]
fn commands_of_first_pages_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let server = model();
    let mut run = 0;
    for page in ["install", "first-run", "first-guard", "first-program", "first-audit"] {
        let cli = Cli::new();
        symlink(root.join("crates"), cli.path("crates")).unwrap();
        std::fs::create_dir(cli.path("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_endstop"), cli.path("bin/endstop")).unwrap();
        // Stands for Claude Code, with its name and its variables.
        let claude = "#!/bin/sh\nexec endstop run --model anthropic/claude-sonnet-4-5 --base-url \
                      \"$ANTHROPIC_BASE_URL\" --api anthropic-messages --journal off 'Fix it.'\n";
        let claude = cli.write("bin/claude", claude);
        std::fs::set_permissions(claude, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = std::fs::read_to_string(root.join(format!("docs/src/start/{page}.md"))).unwrap();
        let mut last = None;
        for (word, lines) in blocks(&text) {
            match word {
                "sh" => {
                    for line in commands(&lines) {
                        last = None;
                        if ELSEWHERE.iter().any(|start| line.starts_with(start)) {
                            continue;
                        }
                        let status = line.split_once("# exits with ").map_or("0", |(_, n)| n);
                        let done = Started::new(in_shell(&cli, &line, &server), "").finish();
                        let done = done.exits(status.parse().unwrap());
                        last = Some(format!("{}{}", done.stdout, done.stderr));
                        run += 1;
                    }
                }
                "text" => {
                    if let Some(output) = &last {
                        assert_shows(output, &lines, page);
                    }
                }
                _ => {}
            }
        }
    }
    assert!(run >= 12, "only {run} commands");
}

/// Returns a shell with this command, which finds the binary, the keys and the server.
fn in_shell(cli: &Cli, line: &str, server: &Server) -> Command {
    let base = server.base_url();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(cli.dir.path())
        .env_clear()
        .env("PATH", format!("{}:{path}", cli.path("bin").display()))
        .env("HOME", cli.dir.path())
        .env("OPENAI_API_KEY", OPENAI_KEY)
        .env("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
        .env("OPENAI_BASE_URL", &base)
        .env("ANTHROPIC_BASE_URL", base.trim_end_matches("/v1"));
    shell
}
