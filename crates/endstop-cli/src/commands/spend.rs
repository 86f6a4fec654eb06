//! `endstop spend`: adds up what the stored runs have spent.

use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::config::trust::Layers;
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::amounts::count;
use crate::render::date::now_ms;
use crate::render::spend::{Account, Group, lines};
use crate::spend_args::{By, SpendArgs};
use endstop::journal::{JournalError, Period, RunSpending, RunSummary, SpendBooks, SqliteJournal};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn run(args: &SpendArgs, as_json: bool) -> Result {
    // Entries that need consent are left out, as in a run that does not have it.
    let (settings, _) = Layers::find(args.config.as_deref(), Path::new("."))?.merged()?;
    let place = JournalPath::of(args.journal.as_deref(), settings.folder_journal())?;
    let journal = journal_path::to_read(&place)?;
    let now = now_ms();
    let since = args.since.map_or(0, |since| since.unix_ms(now));
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let groups = groups(args.by, &journal.spending(since).map_err(wrong)?);
    let accounts = accounts(&settings, &journal, now).map_err(wrong)?;
    if as_json {
        for group in &groups {
            output::json(&group.json(by_name(args.by)));
        }
        for account in &accounts {
            output::json(&account.json());
        }
        return Ok(0);
    }
    if groups.is_empty() {
        let listed = journal.runs(u32::MAX).map_err(wrong)?;
        let is_free = |run: &&RunSummary| run.uncounted.is_some() && run.started_ms >= since;
        let left_out = match listed.iter().filter(is_free).count() {
            0 => String::new(),
            free => format!(
                "; {} left out, as a demo, a replay or counted by guard",
                count(free as u64, "run")
            ),
        };
        let path = journal.path().display();
        output::note(&format!("no run is stored in {path} for this period{left_out}"));
    }
    for line in lines(by_name(args.by), &groups, &accounts) {
        // Redacted again, because the process that stored a run may not have known all secrets.
        output::line(&line);
    }
    Ok(0)
}

fn by_name(by: By) -> &'static str {
    match by {
        By::Day => "day",
        By::Model => "model",
        By::Project => "project",
        By::Ending => "ending",
    }
}

/// Adds up runs by a value of theirs.
fn groups(by: By, runs: &[RunSpending]) -> Vec<Group> {
    let mut all: BTreeMap<Option<String>, Group> = BTreeMap::new();
    for run in runs {
        let name = match by {
            By::Day => {
                let date = crate::render::date::date(run.started_ms);
                date.split(' ').next().map(str::to_owned)
            }
            By::Model => match (&run.provider, &run.model) {
                (Some(provider), Some(model)) => Some(format!("{provider}/{model}")),
                (one, other) => one.clone().or_else(|| other.clone()),
            },
            By::Project => run.project.clone(),
            By::Ending => run.termination.clone(),
        };
        all.entry(name.clone()).or_insert_with(|| Group::named(name)).add(run);
    }
    all.into_values().collect()
}

/// Returns the ceilings, each with its books.
fn accounts(
    settings: &Settings,
    journal: &SqliteJournal,
    now: u64,
) -> Result<Vec<Account>, JournalError> {
    let spend = &settings.spend;
    let projects = spend.projects.iter().map(|(name, ceilings)| (Some(name), ceilings));
    let mut all = Vec::new();
    for (project, ceilings) in std::iter::once((None, &spend.all)).chain(projects) {
        for period in Period::ALL {
            let (max_usd, max_tokens) = (ceilings.usd(period), ceilings.tokens(period));
            if max_usd.is_none() && max_tokens.is_none() {
                continue;
            }
            let books = journal.books(period, now, now)?;
            let counts =
                |books: &&SpendBooks| project.is_none() || books.project.as_ref() == project;
            all.push(Account {
                period,
                project: project.cloned(),
                max_usd,
                max_tokens,
                books: books.iter().filter(counts).fold(SpendBooks::default(), added),
                resets_ms: period.around(now).1,
            });
        }
    }
    Ok(all)
}

fn added(sum: SpendBooks, books: &SpendBooks) -> SpendBooks {
    SpendBooks {
        project: sum.project,
        spent: sum.spent + books.spent,
        spent_tokens: sum.spent_tokens.saturating_add(books.spent_tokens),
        reserved: sum.reserved + books.reserved,
        reserved_tokens: sum.reserved_tokens.saturating_add(books.reserved_tokens),
        lost: sum.lost + books.lost,
        lost_tokens: sum.lost_tokens.saturating_add(books.lost_tokens),
    }
}
