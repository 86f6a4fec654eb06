//! Reads files and standard input, whole or line by line, within bounds. Every error names the
//! input.

use crate::failure::{Failure, Result};
use crate::output;
use endstop::core::bounded_json;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum size in bytes of an input that is read whole. A bound is needed because a device such as
/// `/dev/zero` has no end.
const LONGEST: u64 = 64 << 20;

/// Maximum length of a line, in bytes. It is larger than the bound on whole inputs because a line
/// of a recorded run holds a complete conversation.
const LONGEST_LINE: u64 = 256 << 20;

/// The source of input.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl Source {
    /// Returns the source for a path: `-` or no path is standard input.
    pub(crate) fn of(path: Option<&Path>) -> Source {
        match path {
            Some(path) if path != Path::new("-") => Source::File(path.to_owned()),
            _ => Source::Stdin,
        }
    }

    /// Returns the name for errors.
    pub(crate) fn name(&self) -> String {
        match self {
            Source::Stdin => "standard input".to_owned(),
            Source::File(path) => path.display().to_string(),
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("{}: {what}", self.name()))
    }

    fn open(&self) -> Result<Box<dyn BufRead>> {
        match self {
            Source::Stdin => Ok(Box::new(BufReader::new(io::stdin()))),
            Source::File(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 16, file))),
                Err(error) => Err(self.wrong(error)),
            },
        }
    }

    /// Reads the whole input as bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than allowed shows that the input is too long without reading all of it.
        let read = self.open()?.take(LONGEST + 1).read_to_end(&mut bytes);
        if read.map_err(|error| self.wrong(error))? as u64 > LONGEST {
            return Err(self.wrong(format!("larger than {} MiB", LONGEST >> 20)));
        }
        Ok(bytes)
    }

    /// Reads the whole input as text; invalid UTF-8 is an error.
    pub(crate) fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?)
            .map_err(|error| self.wrong(format!("not UTF-8: {}", error.utf8_error())))
    }

    /// Reads the whole input as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        bounded_json::from_str(&self.text()?)
            .map_err(|error| self.wrong(format!("not valid JSON: {error}")))
    }

    /// Calls `line` with each line and its number, from 1. Lines are bytes, so that the caller can
    /// report invalid UTF-8 for one line and continue. Ends early if standard output takes no more text.
    pub(crate) fn each_line(&self, mut line: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut reader = self.open()?;
        let mut bytes = Vec::new();
        let mut number = 0;
        loop {
            bytes.clear();
            let read = reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes);
            if read.map_err(|error| self.wrong(error))? == 0 {
                return Ok(());
            }
            number += 1;
            if bytes.len() as u64 > LONGEST_LINE {
                return Err(
                    self.wrong(format!("line {number}: longer than {} MiB", LONGEST_LINE >> 20))
                );
            }
            line(number, bytes.trim_ascii_end())?;
            // Input may have no end, and a result for the next line would not be read.
            if output::has_ended() {
                return Ok(());
            }
        }
    }
}

/// `true` if a flag is among the arguments, also of a command line that could not be parsed.
pub(crate) fn has_argument(flag: &str) -> bool {
    // After `--`, an argument is a value and not a flag.
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == flag)
}

/// `true` if the arguments ask for the short help, which lists the most used flags only. Flags are hidden only then: with
/// a hidden one, clap would put each description of the long help on a line of its own.
pub(crate) fn is_short_help() -> bool {
    has_argument("-h")
}
