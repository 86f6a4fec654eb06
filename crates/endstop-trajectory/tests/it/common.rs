//! Fixtures, and helpers that read generated input.

use endstop_trajectory::read::{Chunks, Opened, Options, Problem, Source, for_each};
use endstop_trajectory::{Step, Trajectory};
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

pub type Read = (Vec<Trajectory<'static>>, Vec<Problem>);

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Returns all fixture files that contain runs.
pub fn fixtures() -> Vec<PathBuf> {
    fn below(folder: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(path, found);
            } else if !path.extension().is_some_and(|ending| ending == "md" || ending == "tsv") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(fixture(""), &mut found);
    found.sort();
    found
}

/// Reads the runs and the problems of a path.
pub fn read_with(path: impl Into<PathBuf>, options: &Options) -> Read {
    let mut read = (Vec::new(), Vec::new());
    for_each(path, options, &mut |run| match run {
        Ok(run) => read.0.push(run.into_owned()),
        Err(problem) => read.1.push(problem),
    })
    .unwrap();
    read
}

/// Reads a fixture without problems.
pub fn runs(name: &str) -> Vec<Trajectory<'static>> {
    let (runs, problems) = read_with(fixture(name), &Options::default());
    assert_eq!(problems, [], "{name}");
    runs
}

/// Reads bytes as a file with this name.
pub fn read_bytes(name: &str, bytes: impl Into<Vec<u8>>, options: &Options) -> Read {
    let mut read = (Vec::new(), Vec::new());
    let input = Box::new(Cursor::new(bytes.into()));
    match Chunks::of(input, Source::file(name), name.to_owned(), options) {
        Err(problem) => read.1.push(problem),
        Ok(Opened::Skipped(why)) => panic!("{name}: {why}"),
        Ok(Opened::Runs(mut chunks)) => {
            while let Some(chunk) = chunks.next() {
                match chunk {
                    Err(problem) => read.1.push(problem),
                    Ok(chunk) => {
                        chunk.each(&mut |run| match run {
                            Ok(run) => read.0.push(run.into_owned()),
                            Err(problem) => read.1.push(problem),
                        });
                        chunks.reuse(chunk);
                    }
                }
            }
        }
    }
    read
}

/// As [`read_bytes`], and asserts that there are no problems.
pub fn parsed(name: &str, bytes: impl Into<Vec<u8>>) -> Vec<Trajectory<'static>> {
    let (runs, problems) = read_bytes(name, bytes, &Options::default());
    assert_eq!(problems, [], "{name}");
    runs
}

/// Counts steps, turns, calls, results and failures.
pub fn counts(run: &Trajectory<'_>) -> [usize; 5] {
    let steps = || run.steps.iter().filter(|step| !step.copied);
    let sum = |count: fn(&Step<'_>) -> usize| steps().map(count).sum::<usize>();
    [
        run.steps.len(),
        run.turns().count(),
        sum(|step| step.calls.len()),
        sum(|step| step.results.len()),
        sum(|step| step.results.iter().filter(|result| result.is_error).count()),
    ]
}

/// Returns the reason of the ending and the recorder's own name for it.
pub fn ending<'r>(run: &'r Trajectory<'_>) -> Option<(&'r str, Option<&'r str>)> {
    run.ending.as_ref().map(|ending| (&*ending.reason, ending.native.as_deref()))
}

/// A folder that is deleted after the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("endstop-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
