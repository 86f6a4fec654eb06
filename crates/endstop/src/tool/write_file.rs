//! The `write_file` tool: writes a whole text file.
//!
//! ```
//! use endstop::tool::WriteFile;
//! let tool = WriteFile::default().confined_to("."); // only files in the working folder
//! # let _ = tool;
//! ```

use super::arguments::text_argument;
use super::{Tool, ToolContext, ToolFuture, ToolOutput, confine, replace};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Writes a text file and creates missing parent folders.
///
/// The file keeps its owner, permissions and hard links, and a symbolic link to it stays a link. A
/// set-user-ID or set-group-ID bit is dropped. Devices, pipes, sockets and folders are refused, and
/// so is a file whose mode allows no user to write. The content is replaced by a rename, or written
/// in place if a rename would break hard links or change the owner.
#[derive(Clone, Debug, Default)]
pub struct WriteFile {
    root: Option<PathBuf>,
}

impl WriteFile {
    /// Refuses files outside of this folder, which is relative to the working folder.
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
        "Writes a text file and replaces its old content. Missing parent folders are created."
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the working folder."},
                "content": {"type": "string", "description": "The whole content of the file."}
            },
            "required": ["path", "content"]
        })
    }
    fn repeatable(&self) -> bool {
        // Writing the same content twice has the same effect as writing it once.
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
            // A write that is cancelled leaves the old file.
            let root = self.root.clone();
            let written = confine::on_file(path, context, root, move |path, place, stop| {
                replace::write(place, content.as_bytes(), stop)
                    .map_err(|e| format!("{path}: {e}"))?;
                Ok(format!("{path}: {} bytes written", content.len()))
            });
            match written.await {
                Ok(said) => said.into(),
                Err(_) => ToolOutput::error("the file could not be written: the writer failed"),
            }
        })
    }
}
