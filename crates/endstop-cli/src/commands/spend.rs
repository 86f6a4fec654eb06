//! `endstop spend`: adds up what the stored runs have spent.

use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::config::spend::Ceilings;
use crate::config::trust::Layers;
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::date::now_ms;
use crate::render::spend::{Account, Group, lines};
use crate::spend_args::{By, SpendArgs};
use endstop::journal::{DayBooks, RunSpending};
use std::collections::BTreeMap;
use std::path::Path;

const DAY_MS: u64 = 86_400_000;

pub(crate) fn run(args: &SpendArgs, as_json: bool) -> Result {
    // Entries that need consent are left out, as in a run that does not have it.
    let (settings, _) = Layers::find(args.config.as_deref(), Path::new("."))?.merged()?;
    let place = JournalPath::of(args.journal.as_deref(), settings.folder_journal())?;
    let journal = journal_path::to_read(&place)?;
    let now = now_ms();
    let since = args.since.map_or(0, |since| since.unix_ms(now));
    let wrong = |error: endstop::journal::JournalError| Failure::usage(error.to_string());
    let groups = groups(args.by, &journal.spending(since).map_err(wrong)?);
    let books = journal.day_books(now / DAY_MS, now).map_err(wrong)?;
    let resets = (now / DAY_MS + 1) * DAY_MS;
    let accounts = accounts(&settings, &books, resets);
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
        output::note(&format!("no run is stored in {} for this period", journal.path().display()));
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

/// Returns the ceilings of today, each with its books.
fn accounts(settings: &Settings, books: &[DayBooks], resets_ms: u64) -> Vec<Account> {
    let account = |name: Option<&str>, ceilings: Ceilings, books: Vec<&DayBooks>| {
        let Ceilings { max_usd_per_day, max_tokens_per_day } = ceilings;
        (ceilings != Ceilings::default()).then(|| Account {
            project: name.map(str::to_owned),
            max_usd_per_day,
            max_tokens_per_day,
            books: books.into_iter().fold(DayBooks::default(), added),
            resets_ms,
        })
    };
    let spend = &settings.spend;
    let mut all: Vec<Account> =
        account(None, spend.all, books.iter().collect()).into_iter().collect();
    for (name, ceilings) in &spend.projects {
        let own = books.iter().filter(|books| books.project.as_ref() == Some(name));
        all.extend(account(Some(name), *ceilings, own.collect()));
    }
    all
}

fn added(sum: DayBooks, books: &DayBooks) -> DayBooks {
    DayBooks {
        project: sum.project,
        spent: sum.spent + books.spent,
        spent_tokens: sum.spent_tokens.saturating_add(books.spent_tokens),
        reserved: sum.reserved + books.reserved,
        reserved_tokens: sum.reserved_tokens.saturating_add(books.reserved_tokens),
        lost: sum.lost + books.lost,
        lost_tokens: sum.lost_tokens.saturating_add(books.lost_tokens),
    }
}
