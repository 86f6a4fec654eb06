//! The process that runs the agent: `victim JOURNAL URL STEPS AFTER [RUN]`.
//!
//! Each step writes two lines with its number to the file STEPS, one at its start and one at its
//! end. The process kills itself after AFTER records of the journal (`0`: never). With RUN it
//! resumes that run.

use endstop::journal::{
    BatchRunJournal, Journal, JournalError, Record, RecordedRun, RunHeader, RunJournal,
    SqliteJournal,
};
use endstop::provider::http::HttpProvider;
use endstop::tool::{ToolOutput, tool_fn};
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Limits, Message, NanoUsd, Outcome, Price};
use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A journal that kills its own process after a given number of records.
#[derive(Clone)]
struct Deadly {
    inner: SqliteJournal,
    left: Arc<AtomicU32>,
}

struct DeadlyLog {
    inner: Box<dyn RunJournal>,
    left: Arc<AtomicU32>,
}

impl Deadly {
    fn log(&self, inner: Box<dyn RunJournal>) -> Box<dyn RunJournal> {
        Box::new(DeadlyLog { inner, left: Arc::clone(&self.left) })
    }
}

fn count_down(left: &AtomicU32) {
    // The check comes first, so that 0 never wraps around and counts down to 1.
    if left.load(Ordering::SeqCst) > 0 && left.fetch_sub(1, Ordering::SeqCst) == 1 {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::park();
    }
}

impl Journal for Deadly {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let log = self.inner.begin(header)?;
        count_down(&self.left);
        Ok(self.log(log))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        Journal::load(&self.inner, id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(self.log(self.inner.resume(id)?))
    }
}

impl RunJournal for DeadlyLog {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        for record in records {
            self.inner.append(std::slice::from_ref(record))?;
            count_down(&self.left);
        }
        Ok(())
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        self.inner.ended(outcome, text)?;
        count_down(&self.left);
        Ok(())
    }
    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        Some(self)
    }
}

impl BatchRunJournal for DeadlyLog {
    fn try_append(&mut self, _: &[Record]) -> Option<Result<(), JournalError>> {
        None
    }
    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool {
        self.inner.batch().is_some_and(|log| log.messages(messages, keys))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Step {
    number: u32,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let [journal, url, steps, after, ..] = arguments else { panic!("four arguments") };
    let journal = Deadly {
        inner: SqliteJournal::open(journal).unwrap(),
        left: Arc::new(AtomicU32::new(after.parse().unwrap())),
    };
    let options = HttpProvider::builder("script").base_url(url.clone()).price(Price {
        input: NanoUsd::from_usd(3.0),
        output: NanoUsd::from_usd(15.0),
        ..Price::default()
    });
    let provider = options.env(|_| None).build().unwrap();
    let steps = steps.clone();
    let step = tool_fn("step", "Does a step.", move |step: Step, _| {
        let steps = steps.clone();
        async move {
            let mut file = OpenOptions::new().append(true).create(true).open(&steps).unwrap();
            // One write per line, so that a death does not leave half a line.
            file.write_all(format!("begin {}\n", step.number).as_bytes()).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            file.write_all(format!("end {}\n", step.number).as_bytes()).unwrap();
            ToolOutput::ok(format!("step {} is done", step.number))
        }
    });
    let agent = Agent::builder(provider)
        .tool(step)
        .limits(Limits { max_turns: Some(60), ..Limits::default() })
        .journal(journal)
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let handle = match arguments.get(4) {
            Some(run) => agent.resume(run.as_str()).unwrap(),
            None => agent.run("Do the twenty steps.").unwrap(),
        };
        handle.outcome().await
    });
    println!("{}", serde_json::to_string(&outcome).unwrap());
    ExitCode::from(outcome.exit_status())
}
