//! `write_file`: a text file, written whole.
//!
//! ```
//! use endstop::tool::WriteFile;
//! let tool = WriteFile::default().confined_to("."); // nothing outside of the working folder
//! # let _ = tool;
//! ```

use super::{Tool, ToolContext, ToolFuture, ToolOutput, confine, replace, text_argument};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Writes a text file, with the folders above it.
///
/// The file keeps its owner, its permissions, its hard links and the link that leads to it; a
/// set-user-ID or set-group-ID bit is dropped. Devices, pipes, sockets and folders are refused, and
/// so is a file whose mode lets no user write it. The old content is replaced by a rename, or
/// written in place if a rename would part hard links or change the owner.
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
                replace::write(&place, content.as_bytes(), &stop)
                    .map_err(|e| format!("{path}: {e}"))?;
                Ok::<_, String>(format!("{path}: {} bytes written", content.len()))
            });
            match written.await {
                Ok(said) => said.into(),
                Err(_) => ToolOutput::error("the file could not be written: the writer failed"),
            }
        })
    }
}
