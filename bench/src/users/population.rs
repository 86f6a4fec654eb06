//! The recorded runs that users draw from, and what each candidate really does to them.

use crate::Outcome;
use endstop_trajectory::Trajectory;
use endstop_trajectory::backtest::{Backtest, Candidate, dataset};
use endstop_trajectory::read::{Options, for_each};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The judged runs of a group by task, each with its dataset.
pub(crate) struct Population {
    pub(crate) tasks: Vec<Vec<(String, Trajectory<'static>)>>,
}

impl Population {
    /// Reads the runs of files and models that contain these texts.
    pub(crate) fn read(folder: &str, file: &str, model: &str) -> Outcome<Population> {
        let mut tasks: BTreeMap<(String, String), Vec<(String, Trajectory<'static>)>> =
            BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if !is_wanted(&path, file) {
                continue;
            }
            for_each(&path, &Options::default(), &mut |run| {
                let Ok(run) = run else { return };
                let of_model = run.model.as_deref().unwrap_or_default().contains(model);
                let skipped = run.is_tagged("summary_only") || run.is_tagged("single_turn");
                if !of_model
                    || skipped
                    || run.recorded.success.is_none()
                    || run.turns().count() == 0
                {
                    return;
                }
                let dataset = dataset(&run);
                let task = run.task_id.as_deref().unwrap_or(&run.run_id).to_owned();
                let own = tasks.entry((dataset.clone(), task)).or_default();
                own.push((dataset, run.into_owned()));
            })?;
        }
        Ok(Population { tasks: tasks.into_values().collect() })
    }

    /// Replaces each text by a short one that is equal where the text is, because comparing texts takes most of
    /// the time of a report. A run that a candidate judges differently afterwards stays as it was.
    pub(crate) fn shortened(mut self, candidates: &[Candidate]) -> Outcome<Population> {
        let mut test = Backtest::new(candidates)?;
        for (_, run) in self.tasks.iter_mut().flatten() {
            let short = shortened(run);
            if test.judge(&short) == test.judge(run) {
                *run = short;
            }
        }
        Ok(self)
    }

    pub(crate) fn runs(&self) -> usize {
        self.tasks.iter().map(Vec::len).sum()
    }

    pub(crate) fn good(&self) -> usize {
        let good = |(_, run): &&(String, Trajectory<'static>)| run.recorded.success == Some(true);
        self.tasks.iter().flatten().filter(good).count()
    }

    /// Draws tasks with replacement until they have this number of runs.
    pub(crate) fn draw(&self, runs: usize, random: &mut Random) -> Vec<usize> {
        let (mut own, mut have) = (Vec::new(), 0);
        while have < runs {
            let task = (random.next() % self.tasks.len() as u64) as usize;
            have += self.tasks[task].len();
            own.push(task);
        }
        own
    }
}

/// Replaces the texts of a run by numbers. Rules compare texts without regard to case and white space.
fn shortened(run: &Trajectory<'static>) -> Trajectory<'static> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut number = |text: &str| {
        let folded = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let next = seen.len();
        // Rules ignore an empty text.
        if folded.is_empty() { folded } else { seen.entry(folded).or_insert(next).to_string() }
    };
    let mut short = run.clone();
    for step in &mut short.steps {
        (step.reasoning, step.extra) = (None, None);
        step.text = number(&step.text).into();
        for call in &mut step.calls {
            call.arguments = number(&call.arguments).into();
        }
        for result in &mut step.results {
            result.content = number(&result.content).into();
        }
    }
    short
}

fn is_wanted(path: &Path, file: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".jsonl.zst") && name.starts_with(file)
}

/// The effect of each candidate on each run of a population.
pub(crate) struct Stops {
    runs: Vec<Run>,
}

struct Run {
    task: usize,
    dataset: String,
    model: Option<String>,
    kind: Option<String>,
    good: bool,
    turns: u32,
    /// The first turn after which the reward was full.
    full: Option<u32>,
    fired: Vec<Option<u32>>,
}

impl Stops {
    /// Evaluates all runs.
    pub(crate) fn of(population: &Population, candidates: &[Candidate]) -> Outcome<Stops> {
        let mut test = Backtest::new(candidates)?;
        let mut runs = Vec::with_capacity(population.runs());
        for (task, of) in population.tasks.iter().enumerate() {
            for (dataset, run) in of {
                let judged = test.judge(run);
                let full =
                    run.turns().position(|step| step.reward.is_some_and(|r| r >= 1.0 - 1e-6));
                let id = run.task_id.as_deref().unwrap_or_default();
                runs.push(Run {
                    task,
                    dataset: dataset.clone(),
                    model: run.model.as_deref().map(str::to_owned),
                    kind: id.rsplit_once('/').map(|(kind, _)| kind.to_owned()),
                    good: run.recorded.success == Some(true),
                    turns: judged.turns,
                    full: full.map(|at| at as u32 + 1),
                    fired: judged.fired,
                });
            }
        }
        Ok(Stops { runs })
    }

    /// Returns the share of good tasks of a kind in which a candidate kills a good run of a model.
    pub(crate) fn harmed_tasks(
        &self,
        at: usize,
        model: Option<&str>,
        dataset: &str,
        kind: Option<&str>,
    ) -> f64 {
        let (mut good, mut harmed) = (BTreeSet::new(), BTreeSet::new());
        for run in &self.runs {
            let own = run.dataset == dataset && run.model.as_deref() == model;
            if !own || !run.good || kind.is_some_and(|kind| run.kind.as_deref() != Some(kind)) {
                continue;
            }
            good.insert(run.task);
            let before_full = |turn: u32| run.full.is_none_or(|full| turn < full);
            // A stop after the last turn or after the full reward takes nothing from the run.
            if run.fired[at].is_some_and(|turn| turn < run.turns && before_full(turn)) {
                harmed.insert(run.task);
            }
        }
        harmed.len() as f64 / good.len().max(1) as f64
    }

    /// Returns the share of the steps of failed runs that a candidate saves, of all models if none is
    /// given.
    pub(crate) fn saved(&self, at: usize, model: Option<&str>) -> f64 {
        let (mut saved, mut steps) = (0_u64, 0_u64);
        for run in &self.runs {
            if run.good || model.is_some_and(|model| run.model.as_deref() != Some(model)) {
                continue;
            }
            steps += u64::from(run.turns);
            saved += run.fired[at].map_or(0, |turn| u64::from(run.turns.saturating_sub(turn)));
        }
        saved as f64 / steps.max(1) as f64
    }
}

/// SplitMix64: small, and the same numbers on each machine.
pub(crate) struct Random(u64);

impl Random {
    /// Returns the numbers of one user, which do not depend on those of others: users may be computed in any
    /// order.
    pub(crate) fn of_user(seed: u64, runs: usize, user: u64) -> Random {
        let mut random = Random(seed);
        for part in [runs as u64, user] {
            random = Random(random.next() ^ part);
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}
