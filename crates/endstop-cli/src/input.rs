//! Files and standard input, read whole or line by line, with the name in every error.

use crate::{Failure, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

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

    fn open(&self) -> Result<Box<dyn BufRead>> {
        match self {
            Source::Stdin => Ok(Box::new(BufReader::new(io::stdin()))),
            Source::File(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 16, file))),
                Err(error) => Err(Failure::usage(format!("{}: {error}", self.name()))),
            },
        }
    }

    /// All of it, as bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open()?
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::usage(format!("{}: {error}", self.name())))?;
        Ok(bytes)
    }

    /// All of it, as text; bytes that are no UTF-8 are an error.
    pub(crate) fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?)
            .map_err(|error| Failure::usage(format!("{}: not UTF-8: {error}", self.name())))
    }

    /// Each line with its number, from 1; whether it is text is for the reader to say, line by line.
    pub(crate) fn each_line(&self, mut line: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut reader = self.open()?;
        let mut bytes = Vec::new();
        let mut number = 0;
        loop {
            bytes.clear();
            let read = reader
                .read_until(b'\n', &mut bytes)
                .map_err(|error| Failure::usage(format!("{}: {error}", self.name())))?;
            if read == 0 {
                return Ok(());
            }
            number += 1;
            line(number, bytes.trim_ascii_end())?;
        }
    }
}
