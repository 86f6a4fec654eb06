//! Custom journals that panic: the run continues without a journal, and reports that.

use crate::support::agent;
use endstop::event::AgentEventKind;
use endstop::journal::{
    Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal,
};
use endstop::testkit::Turn;
use endstop::tool::tool_fn;
use endstop::{Outcome, Termination};
use serde_json::{Map, Value, json};

/// Panics at the beginning, at a record, at the end, or when dropped after a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Begin,
    Record(u32),
    End,
    Drop,
}

#[derive(Clone, Copy)]
struct Panics(At);

struct Log(At, u32);

impl Journal for Panics {
    fn begin(&self, _: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        assert!(self.0 != At::Begin, "asked to panic");
        Ok(Box::new(Log(self.0, 0)))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        let problem = format!("no run {id}");
        Err(JournalError { journal: "mine".to_owned(), problem, kind: JournalErrorKind::NotFound })
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.load(id).map(|_| Box::new(Log(self.0, 0)) as _)
    }
}

impl RunJournal for Log {
    fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
        self.1 += 1;
        assert!(self.0 != At::Record(self.1) && self.0 != At::Drop, "asked to panic");
        Ok(())
    }
    fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
        assert!(self.0 != At::End, "asked to panic");
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        assert!(self.0 != At::Drop, "asked to panic");
    }
}

#[tokio::test]
async fn panicking_journal_does_not_end_run() {
    let records = (1..=4).map(At::Record);
    for at in [At::Begin, At::End, At::Drop].into_iter().chain(records) {
        let look = tool_fn("look", "Looks.", |_: Map<String, Value>, _| async { "nothing" });
        let turns = [Turn::call("look", &json!({})), Turn::text("fine"), Turn::text("fine")];
        let agent = agent(turns).tool(look).journal(Panics(at)).build().unwrap().session();
        let mut handle = agent.run("go").unwrap();
        let (mut warnings, mut endings) = (Vec::new(), 0);
        while let Some(event) = handle.next().await {
            match event.kind {
                AgentEventKind::Warning { message, .. } => warnings.push(message),
                AgentEventKind::Finished { .. } => endings += 1,
                _ => {}
            }
        }
        let outcome = handle.await;
        assert_eq!((outcome.termination, endings), (Termination::Stop, 1), "{at:?}: {outcome:?}");
        let [warning] = &warnings[..] else { panic!("{at:?}: {warnings:?}") };
        assert!(warning.ends_with("it panicked: asked to panic"), "{at:?}: {warning}");
        agent.settled().await;
        assert!(agent.run("again").unwrap().await.is_success(), "{at:?}");
    }
}
