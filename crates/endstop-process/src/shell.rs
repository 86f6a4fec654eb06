//! The shell that runs a command line.
//!
//! ```text
//! let child = shell("make test").spawn()?;
//! ```

use std::process::Command;

#[cfg(unix)]
pub(crate) fn shell(line: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line);
    command
}

#[cfg(windows)]
pub(crate) fn shell(line: &str) -> Command {
    use std::os::windows::process::CommandExt;
    let mut command = Command::new("cmd");
    // `cmd` parses its command line by its own rules, so the line must not be quoted as an
    // argument.
    command.arg("/D").arg("/S").arg("/C").raw_arg(format!("\"{line}\""));
    command
}
