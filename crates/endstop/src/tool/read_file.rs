//! `read_file`: a text file, or some of its lines, bounded in size.

use super::{Tool, ToolContext, ToolFuture, ToolOutput, text_argument};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::Path;

/// The most bytes that are answered.
const MOST_BYTES: usize = 64 * 1024;
/// The most bytes that are read to find the lines.
const MOST_READ: u64 = 16 * 1024 * 1024;

/// Reads a text file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFile {
    _private: (),
}

impl Tool for ReadFile {
    fn name(&self) -> &'static str {
        "read_file"
    }
    fn description(&self) -> &'static str {
        "Reads a text file, or `limit` of its lines from line `offset` (1-based) on."
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "offset": {"type": "integer", "minimum": 1},
                "limit": {"type": "integer", "minimum": 1}
            },
            "required": ["path"]
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let path = match text_argument(&arguments, "path") {
                Ok(path) => context.resolve(path),
                Err(problem) => return problem,
            };
            let line = |name: &str| arguments.get(name).and_then(Value::as_u64);
            let (offset, limit) = (line("offset").unwrap_or(1).max(1), line("limit"));
            let read = tokio::task::spawn_blocking(move || read(&path, offset, limit)).await;
            match read {
                Ok(Ok(text)) => ToolOutput::ok(text),
                Ok(Err(problem)) => ToolOutput::error(problem),
                Err(_) => ToolOutput::error("the file could not be read: the reader failed"),
            }
        })
    }
}

fn read(path: &Path, offset: u64, limit: Option<u64>) -> Result<String, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = std::fs::File::open(path).map_err(wrong)?;
    let meta = file.metadata().map_err(wrong)?;
    if !meta.is_file() {
        return Err(format!("{}: not a file", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.contains(&0) {
        return Err(format!("{}: a binary file ({} bytes)", path.display(), meta.len()));
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut out = String::new();
    let skip = usize::try_from(offset - 1).unwrap_or(usize::MAX);
    let take = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    for line in text.split_inclusive('\n').skip(skip).take(take) {
        if out.len() + line.len() > MOST_BYTES {
            let room = MOST_BYTES - out.len();
            let cut = (0..=room).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            out.push_str(&line[..cut]);
            out.push_str("\n[cut: the file goes on; read it from a later line on]");
            return Ok(out);
        }
        out.push_str(line);
    }
    Ok(out)
}
