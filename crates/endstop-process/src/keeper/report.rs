//! The messages between a host and a keeper over their socket.
//!
//! ```text
//! host:   length and command line · T: ask it to end · end of the stream: kill it
//! keeper: started 4711 | refused 2 · ended 9 4712,4713
//!
//! For an agent program, the standard input comes first, and there are two more messages:
//! host:   a descriptor · … · I: interrupt it
//! keeper: … · stopped
//! ```

use std::io::{self, Read};

/// Request to ask the command's group to end.
pub(super) const ASK: u8 = b'T';

/// Request to interrupt an agent program and everything that it has started.
pub(super) const INTERRUPT: u8 = b'I';

/// Message that job control has stopped the agent program.
pub(super) const STOPPED: &[u8] = b"stopped\n";

/// Returns the message that carries a command line.
pub(super) fn command_line(line: &[u8]) -> Vec<u8> {
    [&(line.len() as u64).to_le_bytes()[..], line].concat()
}

/// Receives a command line.
pub(super) fn receive_line(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut line = Vec::new();
    // The buffer grows with the bytes that arrive, because the length may be wrong.
    from.take(length).read_to_end(&mut line)?;
    if line.len() as u64 == length { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The messages of a keeper.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Process id of the command, once it runs.
    pub(super) started: Option<u32>,
    /// Error number of the system if the command could not be started; zero if the error has none.
    pub(super) refused: Option<i32>,
    /// Result of the keeper's work, once it is done.
    pub(super) ended: Option<Done>,
}

/// Result of a keeper's work.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Wait status in the system's encoding; `None` if the command has not exited.
    pub(super) status: Option<i32>,
    /// Process ids of processes that could not be killed.
    pub(super) left: Vec<u32>,
}

impl Report {
    /// Parses the messages received so far. An incomplete last line is ignored.
    pub(super) fn read(said: &[u8]) -> Report {
        let mut report = Report::default();
        for line in said.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
            match (words.next(), words.next()) {
                (Some("started"), Some(pid)) => report.started = pid.parse().ok(),
                (Some("refused"), Some(code)) => report.refused = code.parse().ok(),
                (Some("ended"), Some(status)) => {
                    let left = words.next().unwrap_or_default().split(',');
                    let left = left.filter_map(|pid| pid.parse().ok()).collect();
                    report.ended = Some(Done { status: status.parse().ok(), left });
                }
                _ => {}
            }
        }
        report
    }
}

/// Removes the messages that the agent program was stopped. Returns `true` if there was one.
pub(super) fn take_stops(said: &mut Vec<u8>) -> bool {
    let mut found = false;
    // Repeated messages must not pile up, because an agent program can cause any number of them.
    while let Some(at) = said
        .windows(STOPPED.len())
        .position(|part| part == STOPPED)
        .filter(|at| *at == 0 || said[at - 1] == b'\n')
    {
        said.drain(at..at + STOPPED.len());
        found = true;
    }
    found
}

pub(super) fn started(pid: u32) -> String {
    format!("started {pid}\n")
}

pub(super) fn refused(error: &io::Error) -> String {
    format!("refused {}\n", error.raw_os_error().unwrap_or(0))
}

impl Done {
    pub(super) fn line(&self) -> String {
        let status = self.status.map_or_else(|| "-".to_owned(), |raw| raw.to_string());
        let left: Vec<String> = self.left.iter().map(u32::to_string).collect();
        format!("ended {status} {}\n", left.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_round_trips() {
        let done = Done { status: Some(9), left: vec![4712, 4713] };
        let said = started(4711) + &done.line();
        let heard = Report::read(said.as_bytes());
        assert_eq!(heard, Report { started: Some(4711), refused: None, ended: Some(done) });
        let done = Done { status: None, left: Vec::new() };
        assert_eq!(Report::read(done.line().as_bytes()).ended, Some(done));
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(Report::read(refused(&error).as_bytes()).refused, Some(2));
    }

    #[test]
    fn stop_messages_are_removed() {
        let mut said = started(5).into_bytes();
        assert!(!take_stops(&mut said));
        said.extend(STOPPED.repeat(3));
        said.extend(&STOPPED[..3]);
        assert!(take_stops(&mut said));
        assert_eq!(said, b"started 5\nsto");
    }

    #[test]
    fn incomplete_line_is_ignored() {
        let said = started(4711) + &Done { status: Some(256), left: vec![12] }.line();
        for cut in 0..said.len() {
            let heard = Report::read(&said.as_bytes()[..cut]);
            assert!(heard.ended.is_none(), "{cut}");
            assert!(heard.started.is_none_or(|pid| pid == 4711), "{cut}");
        }
        assert_eq!(Report::read(b"\xff\nended\nnonsense 1 2\n\n"), Report::default());
    }

    #[test]
    fn truncated_command_line_is_error() {
        let sent = command_line(b"echo one");
        assert_eq!(receive_line(&*[&sent[..], b"T"].concat()).unwrap(), b"echo one");
        for cut in 0..sent.len() {
            assert!(receive_line(&sent[..cut]).is_err(), "{cut}");
        }
        assert!(receive_line(&[0xff; 20][..]).is_err());
    }
}
