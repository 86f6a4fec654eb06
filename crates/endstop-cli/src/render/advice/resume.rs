//! The command that resumes a run or repeats its last turn. It is printed only after a resume under those limits was tried
//! on the run's recorded events, so that the hint works.

use super::facts::{Facts, Remedy};
use crate::config::limits::spelled_value;
use crate::config::settings::is_resumable;
use crate::config::trust::seal;
use endstop::core::GuestMode;
use endstop::core::limits::{TABLE, Unit};
use endstop::core::replay::{self, CannotResume};
use endstop::journal::RecordedRun;
use endstop::{
    Limits, Outcome,
    core::{Effect, Limit, LimitValue, Replay, Resumption, RunSpec},
};
use endstop_guard::clients::CLIENTS;
use endstop_report::advice::quoted;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Number of times a limit is doubled before the search for a value that lets the run continue
/// ends.
const DOUBLINGS: u32 = 24;

/// Stands for the user's own words in a printed command, which is refused with them.
pub(crate) const PLACEHOLDER: &str = "SAY WHAT IS IN THE WAY";

/// A command that resumes a run, or repeats its last turn.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// The command with the run's id.
    command: String,
    repeats_turn: bool,
    journal: Option<PathBuf>,
    /// `true` if the run has no seal that marks it as the user's own, because there is no state
    /// folder for the key.
    unmarked: bool,
}

impl Again {
    /// Returns the command that resumes an ended run, or `None` if no command can.
    pub(crate) fn of(
        facts: Facts<'_>,
        recorded: &RecordedRun,
        run: &str,
        journal: Option<&Path>,
    ) -> Option<Again> {
        let remedy = facts.remedy()?;
        if !is_resumable(&recorded.header) || recorded.damage.is_some() {
            return None;
        }
        let spec = recorded.spec(None).ok()?;
        let limits = recorded.limits();
        let (command, repeats_turn) = match remedy {
            Remedy::Nothing => (continues(recorded, limits).then(|| resume(run))?, false),
            // A run that hit a limit ends at once if it is resumed under the same limit, so the
            // command must raise it.
            Remedy::Limit(limit) => match enough(recorded, limits.clone(), limit) {
                Some(flags) => (format!("{} {flags}", resume(run)), false),
                // The ceiling had cut the answer, which stays cut if the run is resumed.
                None if matches!(limit, Limit::MaxBudgetUsd | Limit::MaxTokens) => {
                    let (turn, _) = last_call(recorded, spec)?;
                    let mut limits = limits;
                    let command = branch(recorded, run, turn)?;
                    (format!("{command} {}", raise(&mut limits, limit)?), true)
                }
                None => return None,
            },
            Remedy::OutputCap => {
                let most = spec.max_output.unwrap_or(u64::MAX);
                let (turn, cap) = last_call(recorded, spec)?;
                // As much as the kernel raises it, which was not enough.
                let raised = cap?.saturating_mul(4).min(most);
                if raised <= cap? {
                    return None;
                }
                let command = branch(recorded, run, turn)?;
                (format!("{command} --max-output-tokens {raised}"), true)
            }
        };
        Some(Again { repeats_turn, ..Again::new(command, recorded, journal) })
    }

    /// Returns the command that resumes a run whose process died, or `None` if no command can.
    pub(crate) fn of_interrupted(
        recorded: &RecordedRun,
        run: &str,
        journal: Option<&Path>,
    ) -> Option<Again> {
        let possible = is_resumable(&recorded.header)
            && recorded.damage.is_none()
            && recorded.spec(None).is_ok()
            && continues(recorded, recorded.limits());
        possible.then(|| Again::new(resume(run), recorded, journal))
    }

    fn new(command: String, recorded: &RecordedRun, journal: Option<&Path>) -> Again {
        let unmarked = recorded.header.settings.get(seal::MEMBER).is_none();
        let journal = journal.map(Path::to_owned);
        Again { command, repeats_turn: false, journal, unmarked }
    }

    /// `true` if the command repeats the last turn, instead of resuming the run after it.
    pub(crate) fn repeats_turn(&self) -> bool {
        self.repeats_turn
    }

    pub(crate) fn command(&self) -> String {
        let mut command = self.command.clone();
        // Without this flag the command would stop and ask, because a journal outside the state
        // folder that carries no seal may come from another user.
        if self.journal.is_some() && self.unmarked {
            command.push_str(" --trust-journal");
        }
        in_journal(&command, self.journal.as_deref())
    }
}

/// A guarded program, as the advice about its run needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded<'a> {
    /// The limits of the run; all off if they are not known.
    pub(crate) limits: &'a Limits,
    /// The name of the client in [`CLIENTS`], if the program is known.
    pub(crate) client: Option<&'a str>,
    /// The profile of a standing proxy, which refuses limits as flags.
    pub(crate) profile: Option<&'a str>,
}

impl Guarded<'_> {
    /// Returns the flag that raises a limit, or `None` if its value is not known.
    pub(super) fn raised(self, limit: Limit) -> Option<String> {
        raise(&mut self.limits.clone(), limit)
    }

    /// Returns the command that continues the last session of the program under the same limits, of which one may be
    /// raised. `None` if the program's own command is not known, or a standing proxy has the limits.
    pub(crate) fn again(self, raised: Option<Limit>) -> Option<String> {
        // The command is that of the table, because the name may come from a journal of another user.
        let client = CLIENTS.iter().find(|known| Some(known.name) == self.client)?;
        if client.resume.is_empty() || self.profile.is_some() {
            return None;
        }
        let (mut limits, none) = (self.limits.clone(), Limits::none());
        if let Some(limit) = raised {
            raise(&mut limits, limit)?;
        }
        let mut command = "endstop guard".to_owned();
        for row in TABLE.iter().filter(|row| GuestMode::default().obstacle(row).is_none()) {
            let value = row.value(&limits);
            if let Some(value) = spelled_value(value).filter(|_| value != row.value(&none)) {
                command = format!("{command} --{} {value}", row.name.replace('_', "-"));
            }
        }
        Some(format!("{command} -- {}", client.resume))
    }
}

fn resume(run: &str) -> String {
    format!("endstop run --resume {run}")
}

/// Returns the command that repeats this turn, or `None` if the run cannot be branched before it.
fn branch(recorded: &RecordedRun, run: &str, turn: u32) -> Option<String> {
    let kept = turn.checked_sub(1)?;
    recorded.prefix(kept, None).ok()?;
    Some(format!("endstop branch {run} --at {kept}"))
}

/// Returns what to do about turns without progress: the command that branches before them, with a message. A demo
/// cannot be branched, so its command names another run. `None` if the run cannot be branched there.
pub(crate) fn before_repeats(
    outcome: &Outcome,
    recorded: &RecordedRun,
    run: &str,
    journal: Option<&Path>,
) -> Option<String> {
    if Facts::of(outcome).limit() != Some(Limit::MaxUnproductiveTurns) {
        return None;
    }
    let stale = outcome.no_progress_snapshot.as_ref()?.unproductive_turns;
    let first = outcome.turns.checked_sub(stale)?.checked_add(1)?;
    let demo = recorded.header.settings["demo"].is_string();
    if recorded.damage.is_some() || !(demo || is_resumable(&recorded.header)) {
        return None;
    }
    let command = branch(recorded, if demo { "RUN" } else { run }, first)?;
    let command = format!("{command} --message '{PLACEHOLDER}'");
    let command = if demo { command } else { Again::new(command, recorded, journal).command() };
    Some(format!("describe the obstacle to the model, from before the repeats: {command}"))
}

/// Returns the turn of the run's last model call, and the output cap that was sent.
fn last_call(recorded: &RecordedRun, spec: RunSpec) -> Option<(u32, Option<u64>)> {
    let mut replay = Replay::new(spec);
    let mut last = None;
    for event in &recorded.events {
        for effect in replay.feed(event.clone()) {
            if let Effect::CallModel { turn, output_cap, .. } = effect {
                last = Some((*turn, *output_cap));
            }
        }
    }
    last
}

/// Appends `--journal` to a command if the journal is not found without it.
pub(crate) fn in_journal(command: &str, journal: Option<&Path>) -> String {
    match journal {
        Some(path) => format!("{command} --journal {}", quoted(&path.display().to_string())),
        None => command.to_owned(),
    }
}

/// Returns the flags under which the run continues: the limit is raised, and then each limit that
/// would end the run again. One doubling may not be enough, because the cost of the next call may
/// exceed the raised ceiling too.
fn enough(recorded: &RecordedRun, mut limits: Limits, first: Limit) -> Option<String> {
    let (mut limit, mut flags) = (first, Vec::<(Limit, String)>::new());
    for _ in 0..DOUBLINGS {
        let flag = raise(&mut limits, limit)?;
        flags.retain(|(raised, _)| *raised != limit);
        flags.push((limit, flag));
        match resumed(recorded, limits.clone()) {
            Ok(()) => {
                let flags: Vec<String> = flags.into_iter().map(|(_, flag)| flag).collect();
                return Some(flags.join(" "));
            }
            Err(again) => match Facts::of(&*again?).remedy()? {
                Remedy::Limit(next) => limit = next,
                Remedy::Nothing | Remedy::OutputCap => return None,
            },
        }
    }
    None
}

/// Raises a limit, and returns the flag that does so.
fn raise(limits: &mut Limits, limit: Limit) -> Option<String> {
    let value = raised(limits, limit)?;
    // As for flags: numbers and switches parse as JSON, durations stay strings.
    let read = serde_json::from_str(&value).unwrap_or(Value::String(value.clone()));
    limits.set(limit.name(), &read).ok()?;
    let flag = format!("--{}", limit.name().replace('_', "-"));
    Some(if read == true { flag } else { format!("{flag} {value}") })
}

/// Returns twice the value of a limit, or a switch that is on, in the form that its flag accepts.
fn raised(limits: &Limits, limit: Limit) -> Option<String> {
    let row = limit.row();
    // The `max` calls keep a limit of 0 from staying 0, however often it is doubled.
    Some(match (row.value(limits), row.unit) {
        (LimitValue::Count(count), Unit::Tokens) => count.max(500).checked_mul(2)?.to_string(),
        (LimitValue::Count(count), _) => count.max(1).checked_mul(2)?.to_string(),
        (LimitValue::Usd(usd), _) => (usd.max(0.005) * 2.0).to_string(),
        (LimitValue::Time(time), _) => format!("{}s", (time.as_secs_f64() * 2.0).ceil().max(1.0)),
        (LimitValue::Switch(false), _) => "true".to_owned(),
        // A window is free again after its reset, and a rate after a pause.
        (
            LimitValue::Windows(_)
            | LimitValue::Rates(_)
            | LimitValue::Off
            | LimitValue::Switch(true)
            | LimitValue::Tokens(_),
            _,
        ) => return None,
    })
}

/// `true` if the run continues under these limits.
fn continues(recorded: &RecordedRun, limits: Limits) -> bool {
    resumed(recorded, limits).is_ok()
}

/// Resumes the run under these limits, on its record alone.
///
/// # Errors
/// The run cannot be resumed. With an outcome, it would end again at once.
fn resumed(recorded: &RecordedRun, limits: Limits) -> Result<(), Option<Box<Outcome>>> {
    // The callers have refused a run whose spec cannot be rebuilt, so the fallback is not used.
    let spec = || recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.clone_with(None));
    let with = Resumption { limits: Some(limits), ..Resumption::default() };
    replay::resume(spec, recorded.events.clone(), with).map(drop).map_err(|why| match why {
        CannotResume::EndsAgain(outcome) => Some(outcome),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_limit_can_be_raised() {
        let mut limits = Limits::default();
        let has_more = |unit| !matches!(unit, Unit::TokensCounted | Unit::Windows | Unit::Rates);
        for row in TABLE.iter().filter(|row| has_more(row.unit)) {
            let is_switch = row.unit == Unit::Switch;
            let low = if is_switch { Value::Bool(false) } else { Value::from(row.least) };
            limits.set(row.name, &low).unwrap();
            let before = row.value(&limits);
            let value = raised(&limits, row.limit).unwrap();
            let read = serde_json::from_str(&value).unwrap_or(Value::String(value));
            limits.set(row.name, &read).unwrap();
            assert!(row.value(&limits) > before, "{}", row.name);
        }
        assert_eq!(raised(&limits, Limit::WrapUp), None);
    }

    #[test]
    fn journal_path_is_quoted_for_shell() {
        let named = |path: &str| in_journal("endstop runs", Some(Path::new(path)));
        assert_eq!(named("a/b.db"), "endstop runs --journal a/b.db");
        assert_eq!(named("my runs.db"), "endstop runs --journal 'my runs.db'");
        assert_eq!(named("it's"), r"endstop runs --journal 'it'\''s'");
        assert_eq!(in_journal("endstop runs", None), "endstop runs");
    }
}
