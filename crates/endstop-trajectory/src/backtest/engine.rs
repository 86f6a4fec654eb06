//! Runs a backtest on files and folders: one thread unpacks and splits the files, the others decode
//! and evaluate the runs.
//!
//! ```no_run
//! use endstop_trajectory::backtest::{Backtest, Candidate, Engine};
//! use endstop_trajectory::read::Options;
//! let engine = Engine { options: Options::default(), ..Engine::default() };
//! let done = engine.run(&["runs".into()], || Backtest::new(&Candidate::reference()?), &|_| {})?;
//! println!("{} runs, {} of them twice", done.stats.runs, done.stats.twice_in_file.count);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file with many runs is a dataset, named after the file without its extensions. Files with one
//! run each belong to the dataset of their folder. At any time only a few chunks of about a
//! megabyte are in memory, or of one run if it is longer, regardless of the number of runs.

use super::dataset::dataset;
use super::judge::Backtest;
use crate::model::Trajectory;
use crate::read::{Chunk, Chunks, Opened, Options, Outcomes, Problem, ReadStats, Source, Walk};
use endstop_core::PolicyError;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Reads files and evaluates their runs.
#[derive(Debug)]
pub struct Engine {
    /// Options for reading files.
    pub options: Options,
    /// Outcomes from a separate file; they override those of the recordings.
    pub outcomes: Option<Outcomes>,
    /// Number of threads that evaluate runs.
    pub threads: usize,
}

impl Default for Engine {
    fn default() -> Engine {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Engine { options: Options::default(), outcomes: None, threads }
    }
}

/// The result of a backtest over files.
#[derive(Debug)]
pub struct Done {
    /// The counts.
    pub backtest: Backtest,
    /// Counts and irregularities of the runs that were read.
    pub stats: ReadStats,
    /// The outcomes, with the information which of them were used.
    pub outcomes: Option<Outcomes>,
    /// Number of files in folders that were obviously not runs.
    pub skipped: u64,
}

/// The state that all threads share.
struct Shared {
    stats: ReadStats,
    outcomes: Option<Outcomes>,
}

/// A callback that receives the number of bytes of each finished chunk.
pub type Progress<'p> = dyn Fn(u64) + Sync + 'p;

/// A callback for each evaluated run: its dataset, the run, and for each candidate the turn, from
/// 1, at which it fires. The runs come from several threads, in no particular order.
pub type Each<'e> = dyn Fn(&str, &Trajectory<'_>, &[Option<u32>]) + Sync + 'e;

impl Engine {
    /// Evaluates the runs of these files and folders.
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

    /// As [`Engine::run`], and passes each evaluated run to `each`.
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
        // Built before any file is read, so that an invalid policy is reported at once.
        let others = (1..threads).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
        let shared = Mutex::new(Shared { stats: ReadStats::new(), outcomes: self.outcomes.take() });
        // Bounded, so that the reading thread cannot fill the memory if evaluation is slower.
        let (give, take) = sync_channel::<(u64, Chunk)>(2 * threads);
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
            // The workers end when the channel is closed.
            drop(give);
            (
                first.join(),
                others.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>(),
            )
        });
        // A panic in a worker is a bug, so it is not hidden.
        let mut backtest = backtest.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        for other in others {
            backtest.add(other.unwrap_or_else(|payload| std::panic::resume_unwind(payload)));
        }
        let Shared { mut stats, outcomes } =
            shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        // What the caller adds follows the files.
        stats.move_to((u64::MAX, 0));
        Ok(Done { backtest, stats, outcomes, skipped })
    }

    /// Splits the files into chunks and returns the number of skipped files.
    fn cut(
        &self,
        paths: &[PathBuf],
        give: &SyncSender<(u64, Chunk)>,
        again: &Receiver<Chunk>,
        shared: &Mutex<Shared>,
    ) -> u64 {
        // Chunks are evaluated in any order, so each has its number in the input.
        let number = Cell::new(0);
        let next = || number.replace(number.get() + 1);
        let complain = |problem: &Problem| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.stats.move_to((next(), 0));
            shared.stats.problem(problem);
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
                            // The channel is closed if a worker panicked.
                            if give.send((next(), chunk)).is_err() {
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

/// Evaluates chunks until the channel is closed.
fn judge(
    take: &Mutex<Receiver<(u64, Chunk)>>,
    back: &SyncSender<Chunk>,
    shared: &Mutex<Shared>,
    test: &mut Backtest,
    (progress, each): (&Progress<'_>, &Each<'_>),
) {
    loop {
        let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, chunk)) = next else { return };
        let mut nth = 0;
        chunk.each(&mut |run: Result<Trajectory<'_>, Problem>| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.stats.move_to((number, nth));
            nth += 1;
            match run {
                Ok(mut run) => {
                    if let Some(outcomes) = &mut shared.outcomes {
                        outcomes.apply_at(&mut run, (number, nth));
                    }
                    shared.stats.run(&run);
                    // Evaluation is the slow part, so the lock is released before it.
                    drop(shared);
                    let dataset = dataset(&run);
                    if let Some(fired) = test.run(&dataset, &run) {
                        each(&dataset, &run, fired);
                    }
                }
                Err(problem) => shared.stats.problem(&problem),
            }
        });
        progress(chunk.len() as u64);
        // If the queue is full, the buffer is simply freed.
        let _ = back.try_send(chunk);
    }
}
