//! The `read_file` tool: reads a text file or a range of its lines, with a size limit.
//!
//! ```
//! use endstop::tool::ReadFile;
//! let tool = ReadFile::default().confined_to("."); // only files in the working folder
//! # let _ = tool;
//! ```

use super::arguments::{count_argument, text_argument};
use super::{Tool, ToolContext, ToolFuture, ToolOutput, confine, regular};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Maximum bytes in a result.
const MOST_BYTES: usize = 64 * 1024;
/// Maximum bytes that are read to find the lines.
const MOST_READ: u64 = 64 * 1024 * 1024;

/// Reads a text file.
#[derive(Clone, Debug, Default)]
pub struct ReadFile {
    root: Option<PathBuf>,
}

impl ReadFile {
    /// Refuses files outside of this folder, which is relative to the working folder.
    #[must_use]
    pub fn confined_to(mut self, root: impl Into<PathBuf>) -> ReadFile {
        self.root = Some(root.into());
        self
    }
}

impl Tool for ReadFile {
    fn name(&self) -> &'static str {
        "read_file"
    }
    fn description(&self) -> &'static str {
        "Reads a text file, or `limit` of its lines starting at line `offset` (the first line is 1)."
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the working folder."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line."},
                "limit": {"type": "integer", "minimum": 1, "description": "The number of lines."}
            },
            "required": ["path"]
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
    fn repeatable(&self) -> bool {
        true
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let asked = match Asked::of(&arguments) {
                Ok(asked) => asked,
                Err(problem) => return problem,
            };
            let (path, root) = (asked.path.clone(), self.root.clone());
            let read = confine::on_file(path, context, root, move |_, place, stop| {
                asked.read(place, stop)
            });
            match read.await {
                Ok(text) => text.into(),
                Err(_) => ToolOutput::error("the file could not be read: the reader failed"),
            }
        })
    }
}

struct Asked {
    path: String,
    offset: u64,
    limit: u64,
}

impl Asked {
    fn of(arguments: &Map<String, Value>) -> Result<Asked, ToolOutput> {
        Ok(Asked {
            path: text_argument(arguments, "path")?.to_owned(),
            offset: count_argument(arguments, "offset")?.unwrap_or(1),
            limit: count_argument(arguments, "limit")?.unwrap_or(u64::MAX),
        })
    }

    fn read(&self, place: &Path, stop: &CancellationToken) -> Result<String, String> {
        let path = &self.path;
        let wrong = |error: std::io::Error| format!("{path}: {error}");
        let file = regular::open_to_read(place).map_err(wrong)?;
        let about = file.metadata().map_err(wrong)?;
        let mut reader = BufReader::new(file.take(MOST_READ));
        // Read in chunks, not lines: a file may be one endless line.
        let mut taken = Vec::new();
        let (mut line, mut full) = (1, false);
        let last = self.offset.saturating_add(self.limit - 1);
        while line <= last && !full {
            if stop.is_cancelled() {
                return Err(format!("{path}: stopped before it was read"));
            }
            let bytes = reader.fill_buf().map_err(wrong)?;
            if bytes.is_empty() {
                break;
            }
            // Text has no zero bytes; almost every binary format does.
            if bytes.contains(&0) {
                return Err(format!("{path}: is not text ({} bytes)", about.len()));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if line >= self.offset {
                let room = (MOST_BYTES - taken.len()).min(piece.len());
                taken.extend_from_slice(&piece[..room]);
                full = room < piece.len();
            }
            let read = piece.len();
            line += u64::from(end.is_some());
            reader.consume(read);
        }
        let searched = reader.get_ref().limit() == 0;
        self.answer(taken, line, full, searched, about.len())
    }

    fn answer(
        &self,
        mut taken: Vec<u8>,
        line: u64,
        full: bool,
        searched: bool,
        size: u64,
    ) -> Result<String, String> {
        let path = &self.path;
        // An empty file is a valid result, but a start beyond the end is probably a mistake of the
        // model.
        if taken.is_empty() && self.offset > 1 {
            return Err(if searched {
                format!("{path}: line {} is beyond the first {MOST_READ} bytes", self.offset)
            } else {
                format!("{path}: has no line {}; its last is {}", self.offset, line - 1)
            });
        }
        if full {
            // The limit may have cut a character in two: drop its first part.
            if let Err(error) = std::str::from_utf8(&taken)
                && error.error_len().is_none()
            {
                taken.truncate(error.valid_up_to());
            }
        }
        let text = String::from_utf8(taken)
            .map_err(|_| format!("{path}: is not text in UTF-8 ({size} bytes)"))?;
        Ok(if full {
            format!(
                "{text}\n[… cut after {MOST_BYTES} bytes, in line {line}; the file has {size} \
                 bytes: continue with `offset` …]"
            )
        } else if searched {
            format!("{text}\n[… only the first {MOST_READ} bytes were read …]")
        } else {
            text
        })
    }
}
