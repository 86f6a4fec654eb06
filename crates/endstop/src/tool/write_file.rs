//! `write_file`: a text file, written whole or not at all.
//!
//! ```
//! use endstop::tool::WriteFile;
//! let tool = WriteFile::default().confined_to("."); // nothing outside of the working folder
//! # let _ = tool;
//! ```

use super::{Tool, ToolContext, ToolFuture, ToolOutput, confine, text_argument};
use serde_json::{Map, Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// Writes a text file, with the folders above it.
#[derive(Clone, Debug, Default)]
pub struct WriteFile {
    root: Option<PathBuf>,
}

impl WriteFile {
    /// Refuses files outside of this folder (from the working folder on).
    #[must_use]
    pub fn confined_to(mut self, root: impl Into<PathBuf>) -> WriteFile {
        self.root = Some(root.into());
        self
    }
}

impl Tool for WriteFile {
    fn name(&self) -> &'static str {
        "write_file"
    }
    fn description(&self) -> &'static str {
        "Writes a text file, in place of what was there; folders above it are made."
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, from the working folder on."},
                "content": {"type": "string", "description": "All that the file shall hold."}
            },
            "required": ["path", "content"]
        })
    }
    fn repeatable(&self) -> bool {
        true
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let (path, content) =
                match (text_argument(&arguments, "path"), text_argument(&arguments, "content")) {
                    (Ok(path), Ok(content)) => (path.to_owned(), content.to_owned()),
                    (Err(problem), _) | (_, Err(problem)) => return problem,
                };
            let root = self.root.clone();
            // Where this future is dropped, the old file stays.
            let stop = context.child_token();
            let _guard = stop.clone().drop_guard();
            let written = tokio::task::spawn_blocking(move || {
                let place = confine::place(&path, &context, root.as_deref())?;
                write(&place, content.as_bytes(), &stop).map_err(|e| format!("{path}: {e}"))?;
                Ok::<_, String>(format!("{path}: {} bytes written", content.len()))
            });
            match written.await {
                Ok(said) => said.into(),
                Err(_) => ToolOutput::error("the file could not be written: the writer failed"),
            }
        })
    }
}

/// Writes beside the file and renames, so that a reader sees the old text or the new.
fn write(place: &Path, content: &[u8], stop: &CancellationToken) -> io::Result<()> {
    // A link that is here keeps being one: what it leads to is written.
    let place = &place.canonicalize().unwrap_or_else(|_| place.to_owned());
    if place.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder"));
    }
    let folder = match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder)?;
    let (mut file, beside) = create_beside(folder)?;
    file.write_all(content)?;
    if let Ok(about) = place.metadata() {
        file.set_permissions(about.permissions())?;
    }
    file.sync_all()?;
    drop(file);
    // The last look before it counts.
    if stop.is_cancelled() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped before it was written"));
    }
    fs::rename(&beside.0, place)
}

/// A file that is removed, unless it was renamed.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // After the rename it is not there any more.
        let _ = fs::remove_file(&self.0);
    }
}

fn create_beside(folder: &Path) -> io::Result<(File, Beside)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".endstop-{}-{number}.part", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, Beside(path))),
            // Left by a process of the same number that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
