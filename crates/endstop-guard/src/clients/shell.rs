//! Lines that set the variables in a shell.
//!
//! ```
//! use endstop_guard::clients::{Shell, print_env};
//! let env = [("NO_PROXY".to_owned(), "it's".to_owned())];
//! assert_eq!(print_env("sh".parse()?, &env, &["CLAUDECODE".to_owned()]),
//!     "export NO_PROXY='it'\\''s'\nunset CLAUDECODE\n");
//! # Ok::<(), endstop_guard::clients::UnknownShell>(())
//! ```

use std::fmt::Write as _;
use std::str::FromStr;

/// The syntax of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shell {
    /// `sh` and those that read its syntax: bash, dash, ksh, zsh.
    Sh,
    /// `fish`.
    Fish,
}

/// A shell whose syntax is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown shell `{}`: expected sh, bash, dash, ksh, zsh or fish", .0.escape_debug())]
pub struct UnknownShell(String);

impl FromStr for Shell {
    type Err = UnknownShell;

    /// Parses the name of a shell, or its path as in the variable `SHELL`.
    fn from_str(name: &str) -> Result<Shell, UnknownShell> {
        match name.rsplit('/').next().unwrap_or(name) {
            "sh" | "ash" | "bash" | "dash" | "ksh" | "zsh" => Ok(Shell::Sh),
            "fish" => Ok(Shell::Fish),
            _ => Err(UnknownShell(name.chars().take(100).collect())),
        }
    }
}

/// Returns lines that set and remove variables. Values are quoted. A variable whose name no shell
/// accepts is left out.
pub fn print_env(shell: Shell, set: &[(String, String)], cleared: &[String]) -> String {
    let mut lines = String::new();
    for (name, value) in set.iter().filter(|(name, _)| is_name(name)) {
        // Writing to a `String` cannot fail.
        let _ = match shell {
            // Inside single quotes everything is literal, but for the quote itself.
            Shell::Sh => writeln!(lines, "export {name}='{}'", value.replace('\'', r"'\''")),
            Shell::Fish => {
                let value = value.replace('\\', r"\\").replace('\'', r"\'");
                writeln!(lines, "set -gx {name} '{value}'")
            }
        };
    }
    for name in cleared.iter().filter(|name| is_name(name)) {
        let _ = match shell {
            Shell::Sh => writeln!(lines, "unset {name}"),
            Shell::Fish => writeln!(lines, "set -e {name}"),
        };
    }
    lines
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
