//! `write_file`: a text file, written whole or not at all.

use super::{Tool, ToolContext, ToolFuture, ToolOutput, text_argument};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a text file, with the folders above it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFile {
    _private: (),
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
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"]
        })
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let (path, content) =
                match (text_argument(&arguments, "path"), text_argument(&arguments, "content")) {
                    (Ok(path), Ok(content)) => (context.resolve(path), content.to_owned()),
                    (Err(problem), _) | (_, Err(problem)) => return problem,
                };
            let written = tokio::task::spawn_blocking(move || write(&path, &content)).await;
            match written {
                Ok(Ok(text)) => ToolOutput::ok(text),
                Ok(Err(problem)) => ToolOutput::error(problem),
                Err(_) => ToolOutput::error("the file could not be written: the writer failed"),
            }
        })
    }
}

/// Writes beside the file and renames, so that a reader sees the old text or the new.
fn write(path: &Path, content: &str) -> Result<String, String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).map_err(wrong)?;
    }
    let name = path.file_name().ok_or_else(|| format!("{}: not a file name", path.display()))?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.{number}.part", std::process::id()));
    let beside = path.with_file_name(beside);
    let result = std::fs::write(&beside, content).and_then(|()| {
        if let Ok(old) = std::fs::metadata(path) {
            std::fs::set_permissions(&beside, old.permissions())?;
        }
        std::fs::rename(&beside, path)
    });
    if let Err(error) = result {
        let _ = std::fs::remove_file(&beside);
        return Err(wrong(error));
    }
    Ok(format!("wrote {} bytes to {}", content.len(), path.display()))
}
