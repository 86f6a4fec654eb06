//! Files and standard input, read whole or line by line, within bounds, with the name in every error.

use crate::{Failure, Result};
use endstop::core::bounded_json;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest input that is read whole. A device such as `/dev/zero` has no end.
const LONGEST: u64 = 64 << 20;

/// The longest line.
const LONGEST_LINE: u64 = 256 << 20;

/// Where input comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl Source {
    /// `-` or nothing is standard input.
    pub(crate) fn of(path: Option<&Path>) -> Source {
        match path {
            Some(path) if path != Path::new("-") => Source::File(path.to_owned()),
            _ => Source::Stdin,
        }
    }

    /// Its name, for errors.
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

    /// All of it, as bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.open()?.take(LONGEST + 1).read_to_end(&mut bytes);
        if read.map_err(|error| self.wrong(error))? as u64 > LONGEST {
            return Err(self.wrong(format!("longer than {} MiB, which is not read", LONGEST >> 20)));
        }
        Ok(bytes)
    }

    /// All of it, as text; bytes that are no UTF-8 are an error.
    pub(crate) fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?)
            .map_err(|error| self.wrong(format!("not UTF-8: {}", error.utf8_error())))
    }

    /// All of it, as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        bounded_json::from_str(&self.text()?)
            .map_err(|error| self.wrong(format!("not valid JSON: {error}")))
    }

    /// Each line with its number, from 1; whether it is text is for the reader to say, line by line.
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
                return Err(self.wrong(format!(
                    "line {number}: longer than {} MiB, which is not read",
                    LONGEST_LINE >> 20
                )));
            }
            line(number, bytes.trim_ascii_end())?;
        }
    }
}
