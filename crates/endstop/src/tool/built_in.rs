//! The built-in tools, by name.
//!
//! ```
//! assert_eq!(endstop::tool::built_in("shell").unwrap().name(), "shell");
//! ```

use super::interface::Tool;
use super::read_file::ReadFile;
use super::set::ToolSetError;
use super::shell::Shell;
use super::write_file::WriteFile;
use std::sync::Arc;

/// The names of the built-in tools.
pub const BUILT_IN: [&str; 3] = ["shell", "read_file", "write_file"];

/// Returns a built-in tool.
///
/// # Errors
/// There is no built-in tool with that name. The message lists the choices.
pub fn built_in(name: &str) -> Result<Arc<dyn Tool>, ToolSetError> {
    match name {
        "shell" => Ok(Arc::new(Shell::default())),
        "read_file" => Ok(Arc::new(ReadFile::default())),
        "write_file" => Ok(Arc::new(WriteFile::default())),
        _ => Err(ToolSetError::Unknown {
            name: name.to_owned(),
            choices: BUILT_IN.map(str::to_owned).to_vec(),
        }),
    }
}
