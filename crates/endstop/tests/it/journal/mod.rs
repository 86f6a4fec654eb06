//! Tests of the journal: what it stores, replay, resume, prune, and journals that are damaged, of
//! another version, locked or full.

mod branched;
mod custom;
mod days;
mod guest;
mod guests;
mod held;
mod kept;
mod mixed;
mod pruned;
mod replayed;
mod resumed;
mod retold;
mod shared;
mod switched;
mod third_party;
mod trouble;

use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolOutput, tool_fn};
use endstop::{Agent, AgentBuilder, NanoUsd, Price};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

pub(crate) struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("state/journal.db")
    }
    pub fn journal(&self) -> SqliteJournal {
        SqliteJournal::open(self.file()).unwrap()
    }
}

pub(crate) fn price() -> Price {
    Price { input: NanoUsd::from_usd(3.0), output: NanoUsd::from_usd(15.0), ..Price::default() }
}

pub(crate) fn agent(
    turns: impl IntoIterator<Item = Turn>,
    journal: &SqliteJournal,
) -> AgentBuilder {
    let model = ScriptedModel::new(turns).price(price());
    Agent::builder(model).seed(7).journal(journal.clone())
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Note {
    pub text: String,
}

/// A tool that returns its argument.
pub(crate) fn echo() -> impl Tool + 'static {
    tool_fn("echo", "Says it again.", |note: Note, _| async move { ToolOutput::ok(note.text) })
}
