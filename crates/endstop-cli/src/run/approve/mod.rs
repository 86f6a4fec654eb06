//! Approval prompts (`--ask`): shows a tool call and asks the user whether it may run.
//!
//! ```text
//! ? The model asks to run `shell`:
//! │ "command": "cargo test",
//! │ "timeout_seconds": 300
//! ? Run it? y = yes, n = no, h = halt the run:
//! ```
//!
//! The prompt shows what will run: the arguments as they were parsed, printed again. Every row of
//! them begins with `│ ` and fits the terminal, so that no text of the call can imitate a row of
//! the prompt. Characters without a visible shape are shown as JSON escapes.
//!
//! Input that was typed before the question appeared is discarded, so that it cannot answer the
//! question.

mod rows;

use crate::output;
use endstop::hook::{Approver, HookFuture};
use endstop::{ToolCall, hook::HookDecision};
use rows::Shown;
use std::io::{self, IsTerminal};
use tokio::sync::{mpsc, oneshot};

/// An approver that asks on the terminal before each tool call.
pub(crate) struct AskOnTerminal(mpsc::UnboundedSender<Question>);

/// A call that waits for the user's answer.
pub(crate) struct Question {
    pub(crate) call: ToolCall,
    pub(crate) answer: oneshot::Sender<HookDecision>,
}

/// The pending questions, in order; the code that draws the screen asks them.
pub(crate) type Questions = mpsc::UnboundedReceiver<Question>;

impl AskOnTerminal {
    pub(crate) fn new() -> (AskOnTerminal, Questions) {
        let (sender, questions) = mpsc::unbounded_channel();
        (AskOnTerminal(sender), questions)
    }
}

impl Approver for AskOnTerminal {
    fn approve(&self, call: ToolCall) -> HookFuture<'_> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let asked = self.0.send(Question { call, answer });
            match (asked, answered.await) {
                (Ok(()), Ok(answer)) => answer,
                _ => HookDecision::Deny(
                    "no terminal is available for the approval prompt".to_owned(),
                ),
            }
        })
    }
}

/// A question that waits for its answer.
pub(crate) struct Asked {
    pub(crate) typed: oneshot::Receiver<HookDecision>,
    pub(crate) answer: oneshot::Sender<HookDecision>,
}

/// Waits for the next question; pending forever if there are no questions.
pub(crate) async fn next(questions: &mut Option<Questions>) -> Question {
    if let Some(questions) = questions
        && let Some(question) = questions.recv().await
    {
        return question;
    }
    std::future::pending().await
}

/// Waits for the typed answer. Returns `None` if the run stopped waiting for it.
pub(crate) async fn answered(asked: &mut Option<Asked>) -> Option<HookDecision> {
    let Some(Asked { typed, answer }) = asked else { return std::future::pending().await };
    tokio::select! {
        typed = typed => typed.ok(),
        () = answer.closed() => None,
    }
}

/// Asks about a call. A separate thread waits for the answer, because a read of the terminal cannot
/// be cancelled and must not delay the end of the run.
pub(crate) fn ask(call: ToolCall) -> oneshot::Receiver<HookDecision> {
    let (sender, answer) = oneshot::channel();
    std::thread::spawn(move || {
        // The receiver is gone if the run ended before the answer.
        let _ = sender.send(question(&call));
    });
    answer
}

fn question(call: &ToolCall) -> HookDecision {
    if !io::stdin().is_terminal() {
        return HookDecision::Deny("no terminal is available for the approval prompt".to_owned());
    }
    let shown = Shown::of(call);
    loop {
        // The size is read for each prompt, because the user may have resized the terminal to view
        // the call.
        let (width, height) = size();
        let rows = shown.fitting(width, height);
        output::shown(&rows.text);
        let view = if rows.cut { ", v = view all of it" } else { "" };
        let typed = line(&format!("? Run it? y = yes, n = no, h = halt the run{view}: "));
        match typed.as_deref() {
            Some("y" | "yes") => return HookDecision::Proceed,
            Some("h" | "halt") => {
                return HookDecision::Halt(
                    "the user halted the run at the approval prompt".to_owned(),
                );
            }
            Some("v" | "view") => page(&shown.rows(width), height),
            // Any other letter is a slip, so the question is explained and asked again.
            Some(other) if !other.is_empty() && !matches!(other, "n" | "no") => {
                output::shown(
                    "? y runs the call as it is shown, n denies it and the model reads so, h ends the run\n",
                );
            }
            // Also an empty line and a closed terminal deny: only an explicit yes may run a command.
            _ => {
                return HookDecision::Deny(
                    "the user denied this call at the approval prompt".to_owned(),
                );
            }
        }
    }
}

/// Shows all rows, one screen at a time.
fn page(rows: &[String], height: usize) {
    // Two rows stay free for the prompt and the cursor.
    let pages = rows.chunks(height.saturating_sub(2).max(1));
    let last = pages.len();
    for (at, page) in pages.enumerate() {
        output::shown(&(page.join("\n") + "\n"));
        if at + 1 == last {
            return;
        }
        let shown = (at + 1) * page.len();
        let more = format!("? {shown} of {} rows. Enter = more, q = back: ", rows.len());
        if line(&more).is_none_or(|typed| typed.starts_with('q')) {
            return;
        }
    }
}

/// Returns the columns and rows of the terminal.
fn size() -> (usize, usize) {
    terminal_size::terminal_size()
        .map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// Asks for a line and returns it without surrounding blanks. Input typed before the question is
/// discarded. Returns `None` if the input has ended.
pub(crate) fn line(question: &str) -> Option<String> {
    discard_typed();
    output::shown(question);
    let mut typed = Vec::new();
    loop {
        let mut byte = [0];
        match read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) if byte[0] == b'\n' => break,
            // No valid answer is longer, so the rest of the line is read and dropped.
            Ok(1) if typed.len() < 100 => typed.push(byte[0]),
            Ok(1) => {}
            _ if typed.is_empty() => return None,
            _ => break,
        }
    }
    Some(String::from_utf8_lossy(&typed).trim().to_owned())
}

/// Reads one byte from standard input without the buffer of `io::stdin`, which could hold lines
/// back for a later question.
#[cfg(unix)]
fn read(byte: &mut [u8; 1]) -> io::Result<usize> {
    Ok(rustix::io::read(io::stdin(), byte)?)
}

#[cfg(not(unix))]
fn read(byte: &mut [u8; 1]) -> io::Result<usize> {
    io::Read::read(&mut io::stdin(), byte)
}

#[cfg(unix)]
fn discard_typed() {
    // This fails if standard input is not a terminal, in which case no question is asked.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

#[cfg(not(unix))]
fn discard_typed() {}
