//! Enumerates the files to read: a single file, the files of a folder in order, or standard input.
//!
//! ```text
//! for found in Walk::new(Path::new("runs")) {
//!     let source = found?;     // runs/a.json, runs/b/1.json, runs/b/2.json …
//! }
//! ```
//!
//! Only the names of one folder are held at a time, in order to sort them. Links to folders are not
//! followed, so that a walk cannot loop. Entries whose names begin with a dot are skipped.

use crate::read::problem::{Problem, ProblemKind};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    path: PathBuf,
    /// The folder whose walk found the file.
    root: Option<PathBuf>,
}

impl Source {
    /// Creates the source for a path; `-` is standard input.
    pub fn file(path: impl Into<PathBuf>) -> Source {
        Source { path: path.into(), root: None }
    }

    /// Returns the path; `-` for standard input.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` for standard input.
    pub fn is_stdin(&self) -> bool {
        // A walked folder can contain a file named `-`; only a name given by the user means
        // standard input.
        self.root.is_none() && self.path.as_os_str() == "-"
    }

    /// Returns `true` if a walk found the file, and the user did not name it.
    pub(crate) fn is_found(&self) -> bool {
        self.root.is_some()
    }

    /// Returns the path of a neighbouring file: in the same folder or, with `../` before the name,
    /// in the parent folder if that is still inside the folder that was walked.
    pub(crate) fn beside(&self, name: &str) -> Option<PathBuf> {
        let (above, name) = match name.strip_prefix("../") {
            Some(name) => (true, name),
            None => (false, name),
        };
        // Separators are rejected because the name can come from a recording, and must not lead out
        // of the folder.
        if self.is_stdin() || name.is_empty() || name.contains(['/', '\\']) || name == ".." {
            return None;
        }
        let mut folder = self.path.parent()?;
        if above {
            // A file that the user named has no root, so its parent folder is never read.
            let root = self.root.as_deref()?;
            folder = folder.parent().filter(|parent| parent.starts_with(root))?;
        }
        Some(folder.join(name))
    }
}

/// Iterates over the files under a path, sorted by name, folder by folder.
#[derive(Debug)]
pub struct Walk {
    root: PathBuf,
    first: bool,
    /// A stack of open folders. Each holds its remaining entries, with the next one last.
    open: Vec<Vec<(PathBuf, Kind)>>,
    skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
}

impl Walk {
    /// Creates a walk. A path to a file yields only that file; `-` is standard input.
    pub fn new(path: impl Into<PathBuf>) -> Walk {
        Walk { root: path.into(), first: true, open: Vec::new(), skipped: 0 }
    }

    /// Returns the number of entries skipped so far: hidden ones, links to folders, pipes and
    /// devices.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn enter(&mut self, folder: &Path) -> Result<(), Problem> {
        let mut entries: Vec<(OsString, Kind)> = Vec::new();
        for entry in fs::read_dir(folder).map_err(|e| unreadable(folder, &e))? {
            let entry = entry.map_err(|e| unreadable(folder, &e))?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                _ if name.as_encoded_bytes().starts_with(b".") => None,
                Ok(kind) if kind.is_dir() => Some(Kind::Folder),
                Ok(kind) if kind.is_file() => Some(Kind::File),
                Ok(kind) if kind.is_symlink() => {
                    fs::metadata(entry.path()).is_ok_and(|to| to.is_file()).then_some(Kind::File)
                }
                _ => None,
            };
            match kind {
                Some(kind) => entries.push((name, kind)),
                None => self.skipped += 1,
            }
        }
        // Descending, because entries are popped from the end.
        entries.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        self.open.push(entries.into_iter().map(|(name, kind)| (folder.join(name), kind)).collect());
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<Source, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if std::mem::take(&mut self.first) {
            let path = self.root.clone();
            // A path that does not exist is passed on as a file, so that opening it reports the
            // error.
            if path.as_os_str() == "-" || !path.is_dir() {
                return Some(Ok(Source::file(path)));
            }
            if let Err(problem) = self.enter(&path) {
                return Some(Err(problem));
            }
        }
        loop {
            let folder = self.open.last_mut()?;
            match folder.pop() {
                None => {
                    self.open.pop();
                }
                Some((path, Kind::File)) => {
                    return Some(Ok(Source { path, root: Some(self.root.clone()) }));
                }
                Some((path, Kind::Folder)) => {
                    if let Err(problem) = self.enter(&path) {
                        return Some(Err(problem));
                    }
                }
            }
        }
    }
}

/// Returns a file's name, without its folder and without `.gz` or `.zst`.
pub(crate) fn bare_name(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// Returns a name without its last extension.
pub(crate) fn stem(name: &str) -> &str {
    match name.rfind('.') {
        // A name such as `.jsonl` has no stem before the dot, so it is kept.
        Some(dot) if dot > 0 => &name[..dot],
        _ => name,
    }
}

pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem {
        file: path.display().to_string(),
        at: None,
        kind: ProblemKind::Unreadable,
        what: format!("cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_walk_is_sorted_and_confined() {
        let root = std::env::temp_dir().join(format!("endstop-walk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("b/agent")).unwrap();
        for name in ["c.json", "b/agent/run.json", "b/result.json", "a.json", ".hidden"] {
            fs::write(root.join(name), "{}").unwrap();
        }
        let mut walk = Walk::new(&root);
        let found: Vec<Source> = walk.by_ref().map(Result::unwrap).collect();
        let names: Vec<_> = found
            .iter()
            .map(|s| s.path().strip_prefix(&root).unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["a.json", "b/agent/run.json", "b/result.json", "c.json"]);
        assert_eq!(walk.skipped(), 1);

        let run = &found[1];
        assert_eq!(run.beside("x.json"), Some(root.join("b/agent/x.json")));
        assert_eq!(run.beside("../result.json"), Some(root.join("b/result.json")));
        assert_eq!(found[0].beside("../result.json"), None, "above what was walked");
        assert_eq!(run.beside("../../c.json"), None);
        assert_eq!(Source::file(root.join("b/agent/run.json")).beside("../result.json"), None);
        assert_eq!(Source::file("-").beside("x.json"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
