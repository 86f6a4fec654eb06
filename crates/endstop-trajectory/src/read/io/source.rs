//! Enumerates the files to read: a single file, the files of a folder in order, or standard input.
//!
//! ```text
//! for found in Walk::new(Path::new("runs")) {
//!     let source = found?;     // runs/a.json, runs/b/1.json, runs/b/2.json …
//! }
//! ```
//!
//! Only the names of the open folders are held, in order to sort them. Links to folders are not
//! followed, so that a walk cannot loop. Entries whose names begin with a dot are skipped.

use crate::read::findings::Findings;
use crate::read::problem::{Problem, ProblemKind};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

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

    /// Creates the source for a file that a [`Walk`] of this folder found, for example in another
    /// process. Unlike a file that the user named, it is skipped if it is obviously not a run.
    pub fn found(path: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Source {
        Source { path: path.into(), root: Some(folder.into()) }
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

impl Source {
    /// Returns the path of the file of another session, whose name ends with its id: in the same folder, or
    /// elsewhere in the folder that was walked, or in the folder of another day (`2026/01/31/a.jsonl`).
    pub(crate) fn file_of(&self, id: &str) -> Option<PathBuf> {
        if self.is_stdin() || id.is_empty() {
            return None;
        }
        let is_of = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).map(bare_name);
            let rest = name.and_then(|name| stem(name).strip_suffix(id));
            path != self.path && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('-'))
        };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten();
        let here = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_of(path));
        // The first one by name, because the order of a folder differs between file systems.
        here.min().or_else(|| {
            let mut found = Walk::new(self.root.as_deref().or_else(|| self.days())?).flatten();
            found.find(|source| is_of(&source.path)).map(|source| source.path)
        })
    }

    /// Returns the folder of the years, if the file is in the folder of a day.
    fn days(&self) -> Option<&Path> {
        [2, 2, 4].iter().try_fold(self.path.parent()?, |folder, digits| {
            let name = folder.file_name()?.to_str()?;
            let is_number = name.len() == *digits && name.bytes().all(|byte| byte.is_ascii_digit());
            folder.parent().filter(|_| is_number)
        })
    }
}

/// Iterates over the files under a path, sorted by name, folder by folder.
#[derive(Debug)]
pub struct Walk {
    root: PathBuf,
    /// The entries below the root; `None` if the root is a file or standard input.
    entries: Option<walkdir::IntoIter>,
    /// `true` if the root is the only source and was not returned yet.
    only: bool,
    /// The skipped entries by reason.
    skipped: Findings,
}

/// The reason why a walk skips entries whose names begin with a dot.
pub const HIDDEN: &str = "hidden";

impl Walk {
    /// Creates a walk. A path to a file yields only that file; `-` is standard input.
    pub fn new(path: impl Into<PathBuf>) -> Walk {
        let root = path.into();
        // A path that does not exist is passed on as a file, so that opening it reports the error.
        let is_folder = root.as_os_str() != "-" && root.is_dir();
        let entries = is_folder.then(|| WalkDir::new(&root).sort_by_file_name().into_iter());
        Walk { root, entries, only: !is_folder, skipped: Findings::default() }
    }

    /// Returns the number of entries skipped so far: hidden ones, links to folders, pipes and
    /// devices.
    pub fn skipped(&self) -> u64 {
        self.skipped.count()
    }

    /// Returns the skipped entries by reason, with the first few of each.
    pub fn into_skipped(self) -> Findings {
        self.skipped
    }

    fn skip(&mut self, why: &'static str, path: &Path) {
        self.skipped.add(why, &path.display().to_string(), None, "");
    }
}

impl Iterator for Walk {
    type Item = Result<Source, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if std::mem::take(&mut self.only) {
            return Some(Ok(Source::file(self.root.clone())));
        }
        loop {
            let entries = self.entries.as_mut()?;
            let entry = match entries.next()? {
                Ok(entry) => entry,
                Err(error) => {
                    let path = error.path().unwrap_or(&self.root).to_owned();
                    // Only a loop of links has no I/O error, and links are not followed.
                    let error = error.into_io_error().unwrap_or_else(|| ErrorKind::Other.into());
                    return Some(Err(unreadable(&path, &error)));
                }
            };
            // The root itself may be hidden, because the user named it.
            if entry.depth() == 0 {
                continue;
            }
            let kind = entry.file_type();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                if kind.is_dir() {
                    entries.skip_current_dir();
                }
                self.skip(HIDDEN, entry.path());
                continue;
            }
            if kind.is_dir() {
                continue;
            }
            let to_file = || fs::metadata(entry.path()).is_ok_and(|to| to.is_file());
            if kind.is_file() || kind.is_symlink() && to_file() {
                let path = entry.into_path();
                return Some(Ok(Source { path, root: Some(self.root.clone()) }));
            }
            self.skip("a link to a folder, a pipe or a device", entry.path());
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

    #[cfg(unix)]
    #[test]
    fn walk_skips_what_is_no_file() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["a", "a/.git/objects", "b.d", "empty"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["a.json", "a/2.json", "a/10.json", "a/.git/objects/x", "b.d/x", "-", "é.json"]
        {
            fs::write(at(file), "{}").unwrap();
        }
        symlink(at("a.json"), at("link.json")).unwrap();
        symlink(at("gone"), at("broken.json")).unwrap();
        symlink(at("a"), at("loop")).unwrap();
        symlink(root.path(), at("a/up")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mut walk = Walk::new(root.path());
        let found: Vec<String> = walk
            .by_ref()
            .map(|source| {
                let source = source.unwrap();
                assert!(source.is_found() && !source.is_stdin(), "{source:?}");
                let path = source.path().strip_prefix(root.path()).unwrap();
                path.to_string_lossy().into_owned()
            })
            .collect();
        let want = ["-", "a/10.json", "a/2.json", "a.json", "b.d/x", "link.json", "é.json"];
        assert_eq!(found, want);
        // The hidden folder, the broken link, two links to folders, and the socket.
        assert_eq!(walk.skipped(), 5);
        assert!(walk.next().is_none(), "the end is the end");
        // A link that the user names is followed.
        assert_eq!(Walk::new(at("loop")).count(), 2);
        let hidden: Vec<_> = Walk::new(at("a/.git")).collect();
        assert_eq!(hidden.len(), 1, "the user named it: {hidden:?}");
    }

    #[test]
    fn walk_of_one_path_yields_it() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a.json");
        fs::write(&file, "{}").unwrap();
        for path in [file, root.path().join("gone"), PathBuf::from("-")] {
            let mut walk = Walk::new(&path);
            let only = walk.next().unwrap().unwrap();
            assert_eq!((only.path(), only.is_found()), (path.as_path(), false));
            assert!(walk.next().is_none() && walk.skipped() == 0);
        }
        assert_eq!(
            Walk::new(root.path().join("a.json/b")).count(),
            1,
            "reported when it is opened"
        );
    }
}
