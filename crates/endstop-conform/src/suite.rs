//! All cases of a program, their verdicts, and the level that it has.
//!
//! ```
//! use endstop_conform::suite::Selection;
//! let only = Selection { only: vec!["T-01".to_owned()], ..Selection::default() };
//! let (checks, cases) = only.chosen()?;
//! assert_eq!((checks.len(), cases[0].name.as_str()), (1, "cut-text"));
//! # Ok::<(), String>(())
//! ```

use crate::case::{self, Case, PLAIN};
use crate::checks::{
    CHECKS, Check, EDITION, Finding, Level, Observed, Severity, Verdict, find, not_reached,
};
use crate::evidence::Evidence;
use crate::profile::Profile;
use crate::program::{self, Launch};
use crate::vocabulary::{Capability, expected};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// The checks to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The highest level; all if it is `None`.
    pub level: Option<Level>,
    /// The ids; all of the level if it is empty.
    pub only: Vec<String>,
}

impl Selection {
    /// Returns the checks, and the cases that they need.
    ///
    /// # Errors
    /// An id is not known; the message names a similar one.
    pub fn chosen(&self) -> Result<(Vec<&'static Check>, Vec<Case>), String> {
        let mut checks = Vec::new();
        for id in &self.only {
            let check = find(&id.to_uppercase()).ok_or_else(|| {
                let known = CHECKS.iter().map(|check| check.id);
                format!("invalid id `{id}`: {}", expected(&id.to_uppercase(), known))
            })?;
            if !checks.iter().any(|one: &&Check| one.id == check.id) {
                checks.push(check);
            }
        }
        if checks.is_empty() {
            let most = self.level.unwrap_or(Level::Accountable);
            checks.extend(CHECKS.iter().filter(|check| check.level <= most));
        }
        let all = case::all().map_err(|error| error.to_string())?;
        let every = checks.iter().any(|check| check.every_case);
        let cases = all.into_iter().filter(|case| {
            // The checks of every case judge the cases of the other checks, or all if there are no others.
            let is_listed = case.checks.iter().any(|id| checks.iter().any(|check| check.id == id));
            let only_every = checks.iter().all(|check| check.every_case);
            is_listed || every && only_every || case.name == PLAIN && self.only.is_empty()
        });
        Ok((checks.clone(), cases.collect()))
    }
}

/// The verdict of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckResult {
    /// The id.
    pub id: String,
    /// The level.
    pub level: Level,
    /// `true` for a MUST.
    pub must: bool,
    /// Cost of a failure.
    pub severity: Severity,
    /// The numbers of its sentences.
    pub sentences: Vec<u8>,
    /// Expectation.
    pub text: String,
    /// The verdict: the worst of its cases.
    pub verdict: Verdict,
    /// The reason of this verdict.
    pub why: String,
    /// The verdict in each case.
    pub cases: BTreeMap<String, Finding>,
}

/// The observations in a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the case.
    pub name: String,
    /// Title of the case.
    pub title: String,
    /// Observations.
    pub evidence: Evidence,
}

/// The result of the suite for a program. It is written as JSON, and read again for comparisons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuiteResult {
    /// `conformance`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The edition of the sentences.
    pub edition: String,
    /// The profile.
    pub profile: String,
    /// Name of the program for people.
    pub title: String,
    /// Version of the program, as it prints it; empty if it is not known.
    pub version: String,
    /// `true` if guard stood in front of the program.
    pub guarded: bool,
    /// The command.
    pub command: Vec<String>,
    /// Version of the suite.
    pub suite: String,
    /// The patience in seconds.
    pub patience: u64,
    /// The seed.
    pub seed: u64,
    /// The level that the program has: 0 to 4. `None` if not all checks of level 1 were chosen.
    pub level: Option<u8>,
    /// Number of checks with each verdict.
    pub counts: BTreeMap<String, usize>,
    /// Means by which calls to other hosts were seen.
    pub network: String,
    /// Hosts outside of this machine that the program tried to call.
    pub elsewhere: Vec<String>,
    /// Facts that the reader has to know before the verdicts.
    pub problems: Vec<String>,
    /// The verdicts.
    pub checks: Vec<CheckResult>,
    /// The observations.
    pub cases: Vec<CaseResult>,
}

/// Means by which calls to other hosts are seen.
const NETWORK: &str =
    "calls through the proxy variables were refused and recorded; the system did not enforce it";

/// Runs the chosen cases, at most `jobs` at a time. `seen` gets each case when it has ended.
///
/// # Errors
/// The suite itself has failed, or an id is not known.
pub async fn run(
    launch: &Launch<'_>,
    selection: &Selection,
    jobs: usize,
    seen: &(dyn Fn(&str, usize, usize) + Sync),
) -> io::Result<SuiteResult> {
    let (checks, cases) = selection.chosen().map_err(io::Error::other)?;
    // A case that is not applicable would only cost time.
    let runs: Vec<Case> = cases
        .iter()
        .filter(|case| case.needs.iter().all(|need| launch.profile.can(*need)))
        .cloned()
        .collect();
    let gate = tokio::sync::Semaphore::new(jobs.max(1));
    let done = std::sync::atomic::AtomicUsize::new(0);
    let one = |case: Case| {
        let (gate, done, all) = (&gate, &done, runs.len());
        async move {
            // The gate is not closed while this borrows it.
            let _place = gate.acquire().await.map_err(io::Error::other)?;
            let evidence = program::run(launch, &case).await?;
            let number = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            seen(&case.name, number, all);
            io::Result::Ok((case, evidence))
        }
    };
    let version = program::version(launch).await?;
    let observed = together(runs.iter().cloned().map(one).collect()).await?;
    Ok(SuiteResult { version, ..judge(launch, &checks, &cases, observed) })
}

/// Waits for futures that run at the same time in this task. The first error ends all.
async fn together<T, F: Future<Output = io::Result<T>>>(futures: Vec<F>) -> io::Result<Vec<T>> {
    let mut running: Vec<_> = futures.into_iter().map(|one| (Some(Box::pin(one)), None)).collect();
    std::future::poll_fn(move |context| {
        let mut waits = false;
        for (future, result) in &mut running {
            let Some(one) = future else { continue };
            match one.as_mut().poll(context) {
                std::task::Poll::Ready(Ok(value)) => {
                    *result = Some(value);
                    *future = None;
                }
                std::task::Poll::Ready(Err(error)) => return std::task::Poll::Ready(Err(error)),
                std::task::Poll::Pending => waits = true,
            }
        }
        if waits {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(Ok(running
            .iter_mut()
            .filter_map(|(_, result)| result.take())
            .collect()))
    })
    .await
}

fn judge(
    launch: &Launch<'_>,
    checks: &[&'static Check],
    cases: &[Case],
    observed: Vec<(Case, Evidence)>,
) -> SuiteResult {
    let results: Vec<CheckResult> =
        checks.iter().map(|check| judged(check, launch.profile, cases, &observed)).collect();
    let mut counts: BTreeMap<String, usize> =
        Verdict::ALL.iter().map(|verdict| (verdict.name().to_owned(), 0)).collect();
    for result in &results {
        *counts.entry(result.verdict.name().to_owned()).or_default() += 1;
    }
    let mut elsewhere: Vec<String> =
        observed.iter().flat_map(|(_, evidence)| evidence.elsewhere.clone()).collect();
    elsewhere.sort();
    elsewhere.dedup();
    let plain = observed.iter().find(|(case, _)| case.name == PLAIN).map(|(_, seen)| seen);
    SuiteResult {
        kind: "conformance".to_owned(),
        edition: EDITION.to_owned(),
        profile: launch.profile.name.clone(),
        title: launch.profile.title.clone(),
        version: String::new(),
        guarded: launch.guard.is_some(),
        command: launch.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        suite: env!("CARGO_PKG_VERSION").to_owned(),
        patience: launch.patience.as_secs(),
        seed: launch.seed,
        level: level(&results, works(plain)),
        counts,
        network: NETWORK.to_owned(),
        problems: problems(launch.profile, plain, &elsewhere),
        elsewhere,
        checks: results,
        cases: observed
            .into_iter()
            .map(|(case, evidence)| CaseResult { name: case.name, title: case.title, evidence })
            .collect(),
    }
}

/// `true` unless the plain case was not a success.
fn works(plain: Option<&Evidence>) -> bool {
    plain.is_none_or(|plain| plain.problem.is_none() && plain.success() == Some(true))
}

/// Returns the facts that the reader has to know: a program that fails the plain case has failed before any check.
fn problems(profile: &Profile, plain: Option<&Evidence>, elsewhere: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(plain) = plain {
        let unspoken = plain.calls.iter().find_map(|call| call.unspoken.as_ref());
        if let Some(problem) = &plain.problem {
            problems.push(problem.clone());
        } else if let Some(unspoken) = unspoken.filter(|_| profile.can(Capability::Tools)) {
            problems.push(format!("in the plain case, {}", unspoken.why));
        }
        if !works(Some(plain)) {
            problems.push(format!(
                "the plain case (two calls of a tool if it has one, then an answer) was not a success, so that the program has no \
                 level: {:?} after {} calls; check the profile",
                plain.exit,
                plain.calls.len()
            ));
        }
    }
    if !elsewhere.is_empty() {
        problems.push(format!("the program tried to call other hosts: {}", elsewhere.join(", ")));
    }
    problems
}

fn judged(
    check: &'static Check,
    profile: &Profile,
    cases: &[Case],
    observed: &[(Case, Evidence)],
) -> CheckResult {
    let mut findings = BTreeMap::new();
    let not_run = Evidence::default();
    let is_of_check =
        |case: &&Case| check.every_case || case.checks.iter().any(|id| id == check.id);
    let of_check: Vec<&Case> = cases.iter().filter(is_of_check).collect();
    for case in &of_check {
        let evidence = observed.iter().find(|(run, _)| run.name == case.name).map(|(_, seen)| seen);
        let evidence = evidence.unwrap_or(&not_run);
        let mut finding = check.judge(&Observed { case, profile, evidence });
        if check.every_case || of_check.len() > 1 {
            // The reader of the table has to know which of many cases it is about.
            finding.why = format!("{}: {}", case.name, finding.why);
        }
        findings.insert(case.name.clone(), finding);
    }
    // A case that does not apply says nothing; one that was not reached says less than one that was, for a check of every case.
    let relevant = findings.values().filter(|one| one.verdict != Verdict::NotApplicable);
    let worst = if check.every_case {
        let reached = relevant.clone().filter(|one| one.verdict != Verdict::NotReached);
        reached.max_by_key(|one| one.verdict).or_else(|| relevant.clone().next())
    } else {
        relevant.clone().max_by_key(|one| one.verdict)
    };
    let worst = worst
        .cloned()
        .or_else(|| check.not_applicable(profile))
        .or_else(|| findings.values().next().cloned());
    let worst = worst.unwrap_or_else(|| not_reached("no case was chosen"));
    CheckResult {
        id: check.id.to_owned(),
        level: check.level,
        must: check.must,
        severity: check.severity,
        sentences: check.sentences.to_vec(),
        text: check.text.to_owned(),
        verdict: worst.verdict,
        why: worst.why,
        cases: findings,
    }
}

/// Returns the highest level whose MUSTs, and those of the levels below, all pass. A check that was not chosen counts as not
/// reached. A program that does not even succeed in the plain case has none: that it never calls something finished says nothing.
pub(crate) fn level(results: &[CheckResult], works: bool) -> Option<u8> {
    let is_chosen = |level: Level| {
        CHECKS
            .iter()
            .filter(|check| check.level == level)
            .all(|check| results.iter().any(|one| one.id == check.id))
    };
    if !is_chosen(Level::Ends) {
        return None;
    }
    let holds = |level: &Level| {
        is_chosen(*level)
            && results.iter().filter(|one| one.level == *level && one.must).all(|one| {
                matches!(one.verdict, Verdict::Pass | Verdict::Warn | Verdict::NotApplicable)
            })
    };
    Some(if works { Level::ALL.iter().take_while(|level| holds(level)).count() as u8 } else { 0 })
}

impl SuiteResult {
    /// `true` unless the plain case was run, and was not a success.
    pub fn works(&self) -> bool {
        works(self.cases.iter().find(|case| case.name == PLAIN).map(|case| &case.evidence))
    }

    /// `true` if the program has the level that was asked for; of single checks, if none fails.
    pub fn reaches(&self, selection: &Selection) -> bool {
        if selection.only.is_empty() {
            let asked = u8::from(selection.level.unwrap_or(Level::Accountable));
            return self.level.is_some_and(|level| level >= asked);
        }
        self.checks.iter().all(|one| {
            !one.must
                || matches!(one.verdict, Verdict::Pass | Verdict::Warn | Verdict::NotApplicable)
        })
    }
}
