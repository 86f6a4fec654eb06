//! Paths that must not leave a folder.
//!
//! A path is followed through `..` and symbolic links to the place where it really is, and
//! refused where that is outside. Somebody who swaps a folder for a link between the look and the
//! use is not caught: against a hostile process on the same machine only a sandbox helps.

use super::ToolContext;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The place that a tool's path names, with every link followed; a part at its end may not be
/// there yet. With a root, only places inside of it.
pub(super) fn place(
    path: &str,
    context: &ToolContext,
    root: Option<&Path>,
) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    let asked = context.resolve(path);
    let Some(root) = root else { return Ok(asked) };
    let wrong = |error: io::Error| format!("{}: {error}", asked.display());
    let root = context.resolve(&root.to_string_lossy()).canonicalize().map_err(|error| {
        format!("the folder that files must stay in, {}: {error}", root.display())
    })?;
    let place = real(&std::path::absolute(&asked).map_err(wrong)?).map_err(wrong)?;
    if place.starts_with(&root) {
        Ok(place)
    } else {
        Err(format!("{path}: outside of {}, where files must stay", root.display()))
    }
}

/// The real place: what is there is followed by the system, what is not there is appended.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut there = path;
    let base = loop {
        match there.canonicalize() {
            Ok(base) => break base,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is there all the same: writing would follow it.
                if there.symlink_metadata().is_ok() {
                    return Err(io::Error::new(error.kind(), "a link that leads nowhere"));
                }
                match (there.components().next_back(), there.parent()) {
                    (Some(Component::Normal(name)), Some(parent)) => {
                        missing.push(name);
                        there = parent;
                    }
                    // `..` of a folder that is not there names no place.
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    };
    Ok(missing.iter().rev().fold(base, |place, name| place.join(name)))
}
