//! Processes that could not be killed, in a form for the user.
//!
//! ```text
//! Survivor::of(4711).to_string() // "4711 (sleep 1000)"
//! ```

use std::fmt;

/// Maximum length of a command line in a report, in characters.
const MOST: usize = 200;

/// A process that is still alive although it was killed: it hangs in the kernel, or it belongs to
/// another user (`sudo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Process id.
    pub pid: u32,
    /// Command line, shortened, and safe to write to a terminal. Empty if it is not known.
    pub command: String,
}

impl Survivor {
    /// Describes a process that is running now.
    pub(crate) fn of(pid: u32) -> Survivor {
        Survivor { pid, command: escaped(&command_line(pid)) }
    }
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command.as_str() {
            "" => write!(f, "{}", self.pid),
            command => write!(f, "{} ({command})", self.pid),
        }
    }
}

#[cfg(target_os = "linux")]
fn command_line(pid: u32) -> Vec<u8> {
    use std::io::Read;
    let mut line = Vec::new();
    // Bounded, because a process can set a command line of any length.
    let read = std::fs::File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(4 * MOST as u64).read_to_end(&mut line));
    if read.is_err() { Vec::new() } else { line }
}

#[cfg(not(target_os = "linux"))]
fn command_line(_pid: u32) -> Vec<u8> {
    Vec::new()
}

/// Returns a command line with spaces between its arguments, without characters that a terminal
/// would obey or hide.
fn escaped(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        match c {
            _ if count == MOST => {
                shown.push('…');
                break;
            }
            '\0' => shown.push(' '),
            // `escape_debug` also escapes quotes, which are harmless here.
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_safe_for_terminal() {
        let shown = escaped(b"sh\0-c\0echo \x1b]0;t\x07 'a' \xff\xe2\x80\xae\0");
        assert_eq!(shown, "sh -c echo \\u{1b}]0;t\\u{7} 'a' \u{fffd}\\u{202e}");
        assert_eq!(escaped(&[b'x'; 1000]).chars().count(), MOST + 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn survivor_names_its_command() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let expected = format!("{} (sleep 1000)", child.id());
        // Right after the start, the process may still show the command line of its parent.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut text = String::new();
        while text != expected && std::time::Instant::now() < end {
            text = Survivor::of(child.id()).to_string();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(text, expected);
    }
}
