//! Whole files and folders through a backtest: one thread unpacks and cuts, the others read and judge.
//!
//! ```no_run
//! use endstop_trajectory::backtest::{Backtest, Candidate, Engine};
//! use endstop_trajectory::read::Options;
//! let engine = Engine { options: Options::default(), ..Engine::default() };
//! let done = engine.run(&["runs".into()], || Backtest::new(&Candidate::reference()?), &|_| {})?;
//! println!("{} runs, {} of them twice", done.census.runs, done.census.twice_in_file.count);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file of many runs is a dataset of its own, by its name without its endings; files that are one run
//! each are the dataset of their folder. What is in memory at once are a few pieces of about a megabyte,
//! or of one run where that is longer; how many runs there are changes nothing.

use super::tally::Backtest;
use crate::model::Trajectory;
use crate::read::{Census, Chunk, Chunks, Opened, Options, Outcomes, Problem, Source, Walk};
use endstop_core::PolicyError;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Reads files and judges their runs.
#[derive(Debug)]
pub struct Engine {
    /// How files are read.
    pub options: Options,
    /// Outcomes from a file of their own; they stand above those of the recordings.
    pub outcomes: Option<Outcomes>,
    /// How many threads judge.
    pub threads: usize,
}

impl Default for Engine {
    fn default() -> Engine {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Engine { options: Options::default(), outcomes: None, threads }
    }
}

/// What was done.
#[derive(Debug)]
pub struct Done {
    /// The counts.
    pub backtest: Backtest,
    /// What was read.
    pub census: Census,
    /// The outcomes that were given, and which of them were used.
    pub outcomes: Option<Outcomes>,
    /// Files in folders that were obviously not meant.
    pub skipped: u64,
}

/// What all threads write to.
struct Shared {
    census: Census,
    outcomes: Option<Outcomes>,
}

/// Piece by piece, what is done: bytes of text.
pub type Progress<'p> = dyn Fn(u64) + Sync + 'p;

/// A run that was judged, its dataset, and for each candidate the turn, from 1, at which it fires. Runs
/// come from several threads, in no order.
pub type Each<'e> = dyn Fn(&str, &Trajectory<'_>, &[Option<u32>]) + Sync + 'e;

impl Engine {
    /// Judges the runs of these files and folders.
    ///
    /// # Errors
    /// A policy cannot be built.
    pub fn run(
        self,
        paths: &[PathBuf],
        make: impl Fn() -> Result<Backtest, PolicyError> + Sync,
        progress: &Progress<'_>,
    ) -> Result<Done, PolicyError> {
        self.run_each(paths, make, progress, &|_, _, _| {})
    }

    /// The same, and each run that is judged is shown to `each`.
    ///
    /// # Errors
    /// A policy cannot be built.
    pub fn run_each(
        mut self,
        paths: &[PathBuf],
        make: impl Fn() -> Result<Backtest, PolicyError> + Sync,
        progress: &Progress<'_>,
        each: &Each<'_>,
    ) -> Result<Done, PolicyError> {
        let backtest = make()?;
        let threads = self.threads.max(1);
        let others = (1..threads).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
        let shared = Mutex::new(Shared { census: Census::new(), outcomes: self.outcomes.take() });
        let (give, take) = sync_channel::<Chunk>(2 * threads);
        let (back, again) = sync_channel::<Chunk>(2 * threads);
        let take = Mutex::new(take);
        let mut skipped = 0;
        let (backtest, others) = std::thread::scope(|scope| {
            let work = |mut test: Backtest| {
                let (take, back, shared) = (&take, back.clone(), &shared);
                scope.spawn(move || {
                    judge(take, &back, shared, &mut test, (progress, each));
                    test
                })
            };
            let first = work(backtest);
            let others: Vec<_> = others.into_iter().map(work).collect();
            skipped = self.cut(paths, &give, &again, &shared);
            drop(give);
            (
                first.join(),
                others.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>(),
            )
        });
        // A thread that panicked has a fault that is not to be hidden.
        let mut backtest = backtest.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        for other in others {
            backtest.add(other.unwrap_or_else(|payload| std::panic::resume_unwind(payload)));
        }
        let Shared { census, outcomes } =
            shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Done { backtest, census, outcomes, skipped })
    }

    /// Cuts the files into pieces.
    fn cut(
        &self,
        paths: &[PathBuf],
        give: &SyncSender<Chunk>,
        again: &Receiver<Chunk>,
        shared: &Mutex<Shared>,
    ) -> u64 {
        let complain = |problem: &Problem| {
            shared.lock().unwrap_or_else(PoisonError::into_inner).census.problem(problem);
        };
        let mut skipped = 0;
        for path in paths {
            let mut walk = Walk::new(path);
            for source in walk.by_ref() {
                let opened = source.and_then(|source: Source| Chunks::open(&source, &self.options));
                let mut chunks = match opened {
                    Ok(Opened::Runs(chunks)) => chunks,
                    Ok(Opened::Skipped(_)) => {
                        skipped += 1;
                        continue;
                    }
                    Err(problem) => {
                        complain(&problem);
                        continue;
                    }
                };
                while let Some(chunk) = chunks.next() {
                    match chunk {
                        Ok(chunk) => {
                            // Nobody takes it where a thread has panicked.
                            if give.send(chunk).is_err() {
                                return skipped;
                            }
                        }
                        Err(problem) => complain(&problem),
                    }
                    if let Ok(used) = again.try_recv() {
                        chunks.reuse(used);
                    }
                }
            }
            skipped += walk.skipped();
        }
        skipped
    }
}

/// Judges pieces until there are no more.
fn judge(
    take: &Mutex<Receiver<Chunk>>,
    back: &SyncSender<Chunk>,
    shared: &Mutex<Shared>,
    test: &mut Backtest,
    (progress, each): (&Progress<'_>, &Each<'_>),
) {
    loop {
        let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(chunk) = next else { return };
        chunk.each(&mut |run: Result<Trajectory<'_>, Problem>| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match run {
                Ok(mut run) => {
                    if let Some(outcomes) = &mut shared.outcomes {
                        outcomes.apply(&mut run);
                    }
                    shared.census.run(&run);
                    drop(shared);
                    let dataset = dataset(&run);
                    if let Some(fired) = test.run(&dataset, &run) {
                        each(&dataset, &run, fired);
                    }
                }
                Err(problem) => shared.census.problem(&problem),
            }
        });
        progress(chunk.len() as u64);
        let _ = back.try_send(chunk);
    }
}

/// The dataset of a run: its file, or its folder where the file is the run.
pub fn dataset(run: &Trajectory<'_>) -> String {
    let path = Path::new(&run.origin.file);
    let named = match run.origin.at {
        Some(_) => path,
        None => path.parent().filter(|folder| folder.file_name().is_some()).unwrap_or(path),
    };
    let name = named.file_name().unwrap_or(named.as_os_str()).to_string_lossy();
    if run.origin.at.is_none() && !std::ptr::eq(named, path) {
        return name.into_owned();
    }
    let mut name = &*name;
    for ending in [".zst", ".gz", ".jsonl", ".ndjson", ".json"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    name.to_owned()
}
