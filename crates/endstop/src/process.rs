//! A process group that is signalled only while its number is surely its own, and output that is
//! bounded in memory.

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};

/// A process group, from the start of its leader to the moment that the leader is reaped.
///
/// Dropping it kills the group: a future that is dropped leaves nothing behind.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    child_ended: Option<tokio::signal::unix::Signal>,
}

/// How often the leader is looked at where no signal says that it ended.
#[cfg(unix)]
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

#[cfg(unix)]
impl Group {
    /// The group of a child that was started as a leader and is not reaped.
    pub(crate) fn of(id: u32) -> Option<Group> {
        use tokio::signal::unix::{SignalKind, signal};
        let leader = Pid::from_raw(i32::try_from(id).ok()?)?;
        Some(Group { leader: Some(leader), child_ended: signal(SignalKind::child()).ok() })
    }

    /// Returns when the leader has ended; it is not reaped by this.
    pub(crate) async fn exited(&mut self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        loop {
            let Some(leader) = self.leader else { return };
            // `NOWAIT` leaves it for the one who reaps.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if !matches!(waitid(WaitId::Pid(leader), options), Ok(None)) {
                return;
            }
            match &mut self.child_ended {
                Some(signal) => {
                    let _ = tokio::time::timeout(LOOK, signal.recv()).await;
                }
                None => tokio::time::sleep(LOOK / 10).await,
            }
        }
    }

    /// Asks the whole group to end.
    pub(crate) fn terminate(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, Signal::TERM);
        }
    }

    /// Kills the whole group.
    pub(crate) fn kill(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// The leader was reaped: the number may go to somebody else, and is not used again.
    pub(crate) fn reaped(&mut self) {
        self.leader = None;
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The most bytes kept of each end of an output.
const KEEP: usize = 32 * 1024;

/// An output of which the beginning and the end are kept.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    left_out: u64,
}

impl Capture {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let room = KEEP.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let rest = &bytes[room..];
        if rest.len() >= KEEP {
            self.left_out += (self.tail.len() + rest.len() - KEEP) as u64;
            self.tail.clear();
            self.tail.extend(&rest[rest.len() - KEEP..]);
            return;
        }
        let over = (self.tail.len() + rest.len()).saturating_sub(KEEP);
        self.left_out += over as u64;
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// The output, with a mark where it was cut; bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.left_out == 0 {
            let mut all = self.head.clone();
            all.extend_from_slice(&tail);
            return String::from_utf8_lossy(&all).into_owned();
        }
        format!(
            "{}\n[… {} bytes left out …]\n{}",
            String::from_utf8_lossy(&self.head),
            self.left_out,
            String::from_utf8_lossy(&tail)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_output_are_kept_and_the_cut_is_marked() {
        let mut capture = Capture::default();
        for n in 0..100_000u32 {
            capture.take(format!("{n}\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("0\n1\n") && text.ends_with("99998\n99999\n"));
        assert!(text.contains("bytes left out") && text.len() < 2 * KEEP + 100);
        let mut once = Capture::default();
        once.take(&vec![b'x'; 10 * KEEP]);
        assert_eq!(once.left_out as usize, 8 * KEEP);
    }

    #[test]
    fn a_short_output_is_kept_as_it_is() {
        let mut capture = Capture::default();
        capture.take(b"a\xff");
        capture.take("\u{e9}".as_bytes());
        assert_eq!(capture.text(), "a\u{fffd}\u{e9}");
    }
}
