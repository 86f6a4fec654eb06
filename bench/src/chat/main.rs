//! `bench-chat [RUNS] [BYTES]`: measures the cost of a long chat in a journal: one loop, many runs,
//! and a conversation that grows to BYTES bytes.
//!
//! ```text
//! target/release/bench-chat 400 1900000
//! ```
//!
//! Each run is one question and one answer, without a network. The first and the last tenth of the
//! runs are compared, because a cost that grows with the conversation shows there. Processor time
//! is that of the whole process, which depends little on the load of the machine.

#[path = "../measure.rs"]
#[expect(dead_code, reason = "the other programs use the rest")]
mod measure;

use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, Limits};
use measure::{Watch, median};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| words.get(at).map_or(Ok(or), |word| word.parse());
    let done = match (number(0, 400), number(1, 1_900_000)) {
        (Ok(runs), Ok(bytes)) if runs >= 10 && bytes >= runs => measured(runs, bytes),
        _ => Err(
            "expected at least 10 runs and the bytes of the conversation, for example 400 1900000"
                .into(),
        ),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-chat: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(runs: usize, bytes: usize) -> Result<String, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("bench-chat-{}", std::process::id()));
    let file = folder.join("journal.db");
    let journal = SqliteJournal::open(&file)?;
    let bare = chat(runs, bytes, None)?;
    let kept = chat(runs, bytes, Some(&journal))?;
    // Closing moves the write-ahead log into the file, whose size is measured.
    drop(journal);
    let written = std::fs::metadata(&file)?.len();
    let _ = std::fs::remove_dir_all(&folder);
    Ok(format!(
        "{runs} runs of one loop, conversation of {} bytes\n\
         journal file      {written} bytes, {:.1} times the conversation\n\
         with a journal    {}\n\
         without           {}",
        kept.conversation,
        written as f64 / kept.conversation as f64,
        kept.shown(),
        bare.shown(),
    ))
}

/// The measurements of a chat.
struct Chat {
    /// Wall time and processor time of each run, in milliseconds.
    runs: Vec<f64>,
    cpu: Vec<f64>,
    conversation: usize,
}

impl Chat {
    fn shown(&self) -> String {
        format!("{}\n{:18}{} of processor time", shown(&self.runs), "", shown(&self.cpu))
    }
}

fn shown(runs: &[f64]) -> String {
    let tenth = runs.len() / 10;
    let mid = |runs: &[f64]| median(&mut runs.to_vec());
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    format!(
        "p50 {:.2} ms, p99 {:.2} ms a run; first tenth {:.2} ms, last tenth {:.2} ms",
        mid(runs),
        sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)],
        mid(&runs[..tenth]),
        mid(&runs[runs.len() - tenth..]),
    )
}

fn chat(
    runs: usize,
    bytes: usize,
    journal: Option<&SqliteJournal>,
) -> Result<Chat, Box<dyn Error>> {
    // Half of the bytes are questions, half are answers.
    let words = |nth: usize, size: usize| -> String {
        let line = format!("Message {nth}: the parts of the engine are listed one by one. ");
        line.chars().cycle().take(size).collect()
    };
    let half = bytes / runs / 2;
    let script = (0..runs).map(|nth| Turn::text(words(2 * nth + 1, half)));
    let limits = Limits { max_turns: None, ..Limits::default() };
    let mut builder = Agent::builder(ScriptedModel::new(script)).limits(limits);
    if let Some(journal) = journal {
        builder = builder.journal(journal.clone());
    }
    let agent = builder.system(words(0, 2_000)).build()?.session();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut chat = Chat { runs: Vec::new(), cpu: Vec::new(), conversation: 0 };
    for nth in 0..runs {
        // The question is made before the clock starts.
        let question = words(2 * nth, bytes / runs - half);
        let watch = Watch::start();
        let outcome = runtime.block_on(async {
            let run = agent.run(question)?;
            Ok::<_, endstop::StartError>(run.outcome().await)
        })?;
        let (wall, cpu) = watch.read();
        chat.runs.push(wall * 1e3);
        chat.cpu.push(cpu * 1e3);
        if !outcome.is_success() {
            return Err(format!("run {nth} ended as {}", outcome.termination).into());
        }
        chat.conversation = outcome.messages.iter().map(|m| m.byte_len() as usize).sum();
    }
    Ok(chat)
}
