//! `--ask` on a real terminal: how a call is shown, and which keys answer it.

use crate::cli::{answering, eventually, playing};
use crate::terminal::{ROWS, Terminal};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ASK: [&str; 4] = ["Do it.", "--tool", "shell", "--ask"];

/// A server that requests a call with exactly these arguments, and then answers.
fn asking(arguments: &'static str) -> Server {
    playing([Turn::default().and_raw_call("shell", arguments), Turn::text("Done.")])
}

fn shell(command: &str) -> Turn {
    Turn::call("shell", &json!({ "command": command }))
}

/// `true` if the last rows are a question; the terminal wraps a long one.
fn asked(terminal: &Terminal) -> bool {
    let rows = terminal.rows();
    let last: Vec<&str> = rows.iter().map(String::as_str).filter(|row| !row.is_empty()).collect();
    let end = last[last.len().saturating_sub(2)..].concat();
    end.contains("? Run it?") && end.ends_with(':')
}

fn is_asked(terminal: &Terminal) {
    eventually("a question", || asked(terminal));
}

#[test]
fn call_text_cannot_imitate_question() {
    // Line ends that push the command out of sight, and a line that imitates the question.
    let hostile = concat!(
        "{\"command\":\"touch asked\",\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
        "\"\\n? Run it? y = yes, n = no, h = halt the run: \\u202e\\u200b\":{\"command\":\"ls\"}}"
    );
    let server = asking(hostile);
    let mut terminal = Terminal::run(&server, &ASK);
    is_asked(&terminal);
    let rows = terminal.rows();
    let first = rows.iter().position(|row| row.starts_with("? The model asks to run `shell`:"));
    let rows = &rows[first.expect("the whole question is on the screen")..];
    assert!(rows[1].starts_with("│ \"command\": \"touch asked\","), "{rows:#?}");
    let questions = rows.iter().filter(|row| row.starts_with("? Run it?"));
    assert_eq!(questions.count(), 1, "{rows:#?}");
    let call: String =
        rows.iter().filter_map(|row| row.strip_prefix("│ ")).collect::<Vec<_>>().concat();
    assert!(call.contains("\\n? Run it?") && call.contains("\\u202e\\u200b"), "{rows:#?}");
    // Any other letter is explained, and asked again.
    terminal.types("?\n");
    let explained = || terminal.rows().iter().any(|row| row.starts_with("? y runs the call"));
    eventually("the explanation", explained);
    is_asked(&terminal);
    terminal.types("n\n");
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0);
    assert!(seen.contains("the user denied this call at the approval prompt"), "{seen}");
}

#[test]
fn early_input_answers_no_question() {
    let answers = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&answers);
    let server = answering(move |request| {
        while !wait.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let turn = match request.number {
            1 => shell("touch one"),
            2 => shell("touch two"),
            _ => Turn::text("Done."),
        };
        Reply::turn(request, &turn)
    });
    let mut terminal = Terminal::run(&server, &ASK);
    terminal.types("y\ny\ny\n");
    eventually("the terminal has what was typed", || terminal.rows().concat().contains("yyy"));
    answers.store(true, Ordering::Relaxed);
    is_asked(&terminal);
    let at = |terminal: &Terminal, name: &str| terminal.cli.path(name).exists();
    assert!(!at(&terminal, "one"));
    // The second answer is typed before the second question exists, so it must be discarded.
    terminal.types("y\ny\n");
    eventually("the first command has run", || at(&terminal, "one"));
    // The rows of the first question may still be on the screen, so the second one is recognised by
    // its call.
    eventually("the second question", || {
        terminal.rows().concat().contains("touch two") && asked(&terminal)
    });
    // Longer than the update interval of the status line, which must not overwrite the question.
    std::thread::sleep(Duration::from_millis(600));
    assert!(asked(&terminal), "{:#?}", terminal.rows());
    terminal.types("n\n");
    let second = terminal.cli.path("two");
    let (code, seen) = terminal.finish();
    assert!(seen.contains("the user denied this call at the approval prompt"), "{seen}");
    assert!(!second.exists());
    assert_eq!(code, 0);
}

#[test]
fn long_call_can_be_viewed() {
    let lines: String = (1..=60).map(|n| format!("echo line{n}.\n")).collect();
    let server = playing([shell(&format!("{lines}touch ran")), Turn::text("Done.")]);
    let mut terminal = Terminal::run(&server, &ASK);
    is_asked(&terminal);
    let rows = terminal.rows();
    assert!(rows[..4].iter().any(|row| row.starts_with("? The model asks")), "{rows:#?}");
    let shown = rows.concat();
    assert!(shown.contains("line1.") && shown.contains("touch ran"), "{rows:#?}");
    assert!(shown.contains("more rows; v shows them") && !shown.contains("line30."), "{rows:#?}");
    terminal.types("v\n");
    for page in 1..=6 {
        let read = usize::from(ROWS - 2) * page;
        let more = format!("? {read} of 61 rows.");
        eventually(&more, || terminal.rows().iter().any(|row| row.starts_with(&more)));
        terminal.types("\n");
    }
    eventually("its last row", || terminal.rows().concat().contains("line60."));
    is_asked(&terminal);
    terminal.types("y\n");
    let ran = terminal.cli.path("ran");
    eventually("it has run", || ran.exists());
    assert_eq!(terminal.finish().0, 0);
}

#[test]
fn interrupt_withdraws_question() {
    let server = playing([shell("touch ran"), Turn::text("Done.")]);
    let terminal = Terminal::run(&server, &ASK);
    is_asked(&terminal);
    terminal.interrupt();
    let (code, seen) = terminal.finish();
    assert_eq!(code, 130);
    assert!(seen.contains("stopped: cancelled"), "{seen}");
}
