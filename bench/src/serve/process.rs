//! Child processes of this program, and what a process has used.

use crate::Result;
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Ticks of a second in `/proc/PID/stat`, the same on all architectures that Rust's standard library
/// supports on Linux.
const TICKS: f64 = 100.0;

/// Returns the monotonic clock in nanoseconds, which is the same in every process.
pub(crate) fn now_ns() -> u64 {
    let at = clock_gettime(ClockId::Monotonic);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Returns the processor time of a process and of its children that have ended, in seconds.
pub(crate) fn processor_s(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // `pid (name) state …`; the name may contain any character.
    let fields = stat.rsplit_once(") ").ok_or("an unknown form of /proc/PID/stat")?.1;
    // The fields 14 to 17 of proc(5), utime to cstime; `fields` begins with the third one.
    let ticks: u64 =
        fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Ok(ticks as f64 / TICKS)
}

/// Returns a memory value of a process in MB by the system's name for it: `VmRSS`, `VmHWM`.
pub(crate) fn memory_mb(process: u32, name: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}

/// A process that writes lines, and is killed with this value.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Process { child, lines })
    }

    /// Starts this program in another role.
    pub(crate) fn role(words: &[&str]) -> Result<Process> {
        Process::start(Command::new(std::env::current_exe()?).args(words))
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the process ended early".into());
        }
        Ok(line.trim().to_owned())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the value that this share of the values does not exceed.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
