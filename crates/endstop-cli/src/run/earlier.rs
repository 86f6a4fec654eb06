//! The part of a resumed run that is already stored: what it did, and what has changed since.

use crate::failure::{Failure, Result};
use crate::output;
use crate::render::amounts::count;
use crate::run::approve::line;
use crate::visible::shorten;
use endstop::core::{Effect, Replay, RunEvent};
use endstop::journal::{Change, RecordedRun};
use std::collections::HashMap;
use std::io::{self, IsTerminal};

/// The part of a resumed run that happened before the resume.
pub(crate) struct Earlier {
    /// The message shown once the run continues.
    pub(crate) words: String,
    /// The calls that the run made, by their ids: name and arguments.
    pub(crate) calls: HashMap<String, (String, String)>,
}

impl Earlier {
    pub(crate) fn of(id: &str, recorded: &RecordedRun) -> Earlier {
        let turns =
            recorded.events.iter().filter(|event| event.kind.name() == "turn_ended").count();
        let words = format!(
            "▶ resuming run {id} after {}: {}",
            count(turns as u64, "response"),
            shorten(recorded.task(), 100)
        );
        // A custom policy cannot be rebuilt here. The replay without it only affects this display.
        let spec = recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.clone_with(None));
        // The recorded events hold inputs only. The kernel is replayed on them to learn which tool
        // call each id belongs to.
        let mut replay = Replay::new(spec);
        let mut calls = HashMap::new();
        for event in &recorded.events {
            for effect in replay.feed(event.clone()) {
                if let Effect::Emit(RunEvent::ToolStarted { call_id, name, arguments }) = effect {
                    calls.insert(call_id.clone(), (name.clone(), arguments.clone()));
                }
            }
        }
        Earlier { words, calls }
    }
}

/// Prints the differences from the original run, and asks on the terminal whether to continue.
pub(crate) fn accepted(changes: &[Change]) -> Result<()> {
    output::note("the configuration differs from the original run:");
    for change in changes {
        let shown = |text: &str| shorten(text, 200).replace('\n', " ");
        let (was, is) = (shown(&change.was), shown(&change.is));
        output::note(&format!(
            "  {}: was {was}\n  {:>width$}  is {is}",
            change.what,
            "",
            width = change.what.chars().count()
        ));
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "the configuration differs from the original run (see above); restore it or pass --accept-changes",
        ));
    }
    match line("continue with these changes? y or n: ").as_deref() {
        Some("y" | "yes") => Ok(()),
        _ => Err(Failure::usage("not resumed: the stored run is unchanged")),
    }
}
