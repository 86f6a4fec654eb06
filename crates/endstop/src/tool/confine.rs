//! Confines paths to a folder.
//!
//! A path is resolved through `..` and symbolic links to its real location, and refused if that is
//! outside of the folder. This does not protect against another process that swaps a folder for a
//! link between the check and the use; only a sandbox helps against a hostile process on the same
//! machine.

use super::ToolContext;
use std::io;
use std::path::{Component, Path, PathBuf};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

/// Runs blocking work on the file that the model named, on a thread of its own. Dropping this
/// future cancels the token that the work receives, because dropping does not stop the thread.
pub(super) async fn on_file(
    path: String,
    context: ToolContext,
    root: Option<PathBuf>,
    work: impl FnOnce(&str, &Path, &CancellationToken) -> Result<String, String> + Send + 'static,
) -> Result<Result<String, String>, JoinError> {
    let stop = context.child_token();
    let _guard = stop.clone().drop_guard();
    tokio::task::spawn_blocking(move || {
        let place = place(&path, &context, root.as_deref())?;
        work(&path, &place, &stop)
    })
    .await
}

/// Resolves a tool's path, following all links; the last components need not exist yet. If there is
/// a root, paths outside of it are refused.
fn place(path: &str, context: &ToolContext, root: Option<&Path>) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    let asked = context.resolve(path);
    // Without a root every path is allowed, so links need not be resolved.
    let Some(root) = root else { return Ok(asked) };
    let wrong = |error: io::Error| format!("{}: {error}", asked.display());
    let root = context
        .resolve(&root.to_string_lossy())
        .canonicalize()
        .map_err(|error| format!("the allowed folder {}: {error}", root.display()))?;
    let place = real(&std::path::absolute(&asked).map_err(wrong)?).map_err(wrong)?;
    if place.starts_with(&root) {
        Ok(place)
    } else {
        Err(format!("{path}: outside of the allowed folder {}", root.display()))
    }
}

/// Resolves a path: the system resolves the existing part, and the missing part is appended.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut there = path;
    let base = loop {
        match there.canonicalize() {
            Ok(base) => break base,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A broken link exists as well: writing would follow it and could leave the folder.
                if there.symlink_metadata().is_ok() {
                    return Err(io::Error::new(error.kind(), "a broken symbolic link"));
                }
                match (there.components().next_back(), there.parent()) {
                    (Some(Component::Normal(name)), Some(parent)) => {
                        missing.push(name);
                        there = parent;
                    }
                    // A `..` after a missing folder has no defined location.
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    };
    Ok(missing.iter().rev().fold(base, |place, name| place.join(name)))
}
