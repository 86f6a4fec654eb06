//! Reads files on several threads: one unpacks and splits them, the others decode the runs. The
//! results come back in the order of the input.
//!
//! ```no_run
//! use endstop_trajectory::read::Parallel;
//! let mut turns = 0;
//! let read = Parallel::default().each(
//!     &["runs".into()],
//!     &|| (),
//!     &|(), _, run| run.map_or(0, |run| run.turns().count()),
//!     &mut |count| turns += count,
//! );
//! println!("{turns} turns in {} files", read.files);
//! ```

use super::io::chunk::Chunk;
use super::io::file::{Chunks, Opened};
use super::io::source::Walk;
use super::options::Options;
use super::problem::Problem;
use super::stats::Position;
use super::visited::Visited;
use crate::model::Trajectory;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Settings of a reader on several threads.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// Options for reading files.
    pub options: Options,
    /// Number of threads that decode runs.
    pub threads: usize,
}

impl Default for Parallel {
    fn default() -> Parallel {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Parallel { options: Options::default(), threads }
    }
}

/// A function that summarises a run or a problem on one of the threads, with the state of the thread.
pub type Summarise<'w, S, T> =
    dyn Fn(&mut S, Position, Result<Trajectory<'_>, Problem>) -> T + Sync + 'w;

/// A part of the input: the chunk with its number, or a problem with the file.
type Job = (u64, Result<Chunk, Problem>);

impl Parallel {
    /// Passes each run and each problem of these files and folders to `work`, on several threads, and
    /// each result to `take`, on this thread and in the order of the input. `state` makes the state of
    /// a thread, for example a price list with its cache.
    pub fn each<S, T: Send>(
        &self,
        paths: &[PathBuf],
        state: &(dyn Fn() -> S + Sync),
        work: &Summarise<'_, S, T>,
        take: &mut dyn FnMut(T),
    ) -> Visited {
        let threads = self.threads.max(1);
        // Bounded, so that the reading thread cannot fill the memory if decoding is slower.
        let (give, jobs) = sync_channel::<Job>(2 * threads);
        let (done, results) = channel::<(u64, Vec<T>)>();
        let jobs = Mutex::new(jobs);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (jobs, done) = (&jobs, done.clone());
                scope.spawn(move || decode(jobs, &done, &mut state(), work));
            }
            // The results end when the last worker drops its end of the channel.
            drop(done);
            let reader = scope.spawn(move || self.split(paths, &give));
            in_order(&results, take);
            // A panic is a bug, so it is not hidden.
            reader.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        })
    }

    /// Splits the files into chunks.
    fn split(&self, paths: &[PathBuf], give: &SyncSender<Job>) -> Visited {
        let mut visited = Visited::default();
        let mut number = 0;
        let mut send = |part: Result<Chunk, Problem>| {
            number += 1;
            give.send((number - 1, part)).is_ok()
        };
        for path in paths {
            let mut walk = Walk::new(path);
            for source in walk.by_ref() {
                let opened = source.and_then(|source| {
                    let opened = Chunks::open(&source, &self.options)?;
                    Ok((opened, source))
                });
                let chunks = match opened {
                    Ok((Opened::Runs(chunks), _)) => chunks,
                    Ok((Opened::Skipped(why), source)) => {
                        visited.skip(why, &source);
                        continue;
                    }
                    Err(problem) => {
                        send(Err(problem));
                        continue;
                    }
                };
                visited.files += 1;
                *visited.formats.entry(chunks.format()).or_default() += 1;
                for chunk in *chunks {
                    // The channel is closed if a worker panicked.
                    if !send(chunk) {
                        return visited;
                    }
                }
            }
            visited.walked(walk);
        }
        visited
    }
}

/// Decodes chunks until the channel is closed.
fn decode<S, T>(
    jobs: &Mutex<Receiver<Job>>,
    done: &Sender<(u64, Vec<T>)>,
    state: &mut S,
    work: &Summarise<'_, S, T>,
) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, part)) = next else { return };
        let mut found = Vec::new();
        match part {
            Ok(chunk) => {
                let mut nth = 0;
                chunk.each(&mut |run| {
                    found.push(work(state, (number, nth), run));
                    nth += 1;
                });
            }
            Err(problem) => found.push(work(state, (number, 0), Err(problem))),
        }
        if done.send((number, found)).is_err() {
            return;
        }
    }
}

/// Passes results on in the order of their numbers.
fn in_order<T>(results: &Receiver<(u64, Vec<T>)>, take: &mut dyn FnMut(T)) {
    let mut early: BTreeMap<u64, Vec<T>> = BTreeMap::new();
    let mut next = 0;
    for (number, found) in results {
        early.insert(number, found);
        while let Some(found) = early.remove(&next) {
            found.into_iter().for_each(&mut *take);
            next += 1;
        }
    }
    // After a panic of a worker a number is missing; the others are not lost.
    early.into_values().flatten().for_each(take);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_input_order() {
        let folder = tempfile::tempdir().unwrap();
        for nth in 0..40 {
            let run = |at: u32| {
                format!(r#"{{"schema":"neutral-traj/1","run_id":"{nth}-{at}","steps":[]}}"#)
            };
            let text = (0..30).map(run).collect::<Vec<_>>().join("\n");
            std::fs::write(folder.path().join(format!("{nth:02}.jsonl")), text).unwrap();
        }
        std::fs::write(folder.path().join("10.broken.json"), "{\"a\":").unwrap();
        let read = |threads| {
            let mut all = Vec::new();
            let visited = Parallel { threads, ..Parallel::default() }.each(
                &[folder.path().to_owned()],
                &|| (),
                &|(), at, run| {
                    (at, run.map_or("problem".to_owned(), |run| run.run_id.into_owned()))
                },
                &mut |one| all.push(one),
            );
            (all, visited)
        };
        let (all, visited) = read(1);
        assert_eq!((all.len(), visited.files), (40 * 30 + 1, 40));
        assert!(all.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(read(7), (all, visited));
    }
}
