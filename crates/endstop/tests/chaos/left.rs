//! Counts the resources of this process (descriptors, threads, tasks, child processes) to find
//! leaks.
//!
//! ```text
//! let before = Held::now(&runtime, "30.4711");
//! // … runs …
//! let more = before.left(&runtime, "30.4711", patience); // names what is left
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The resources of this process at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Targets of the descriptors, and the number of each.
    descriptors: BTreeMap<String, usize>,
    threads: usize,
    tasks: usize,
    /// Command lines of the descendants of this process, and of processes with the unique `sleep`.
    processes: Vec<String>,
}

impl Held {
    pub(crate) fn now(runtime: &Handle, sleep: &str) -> Held {
        Held {
            descriptors: descriptors(),
            threads: fs::read_dir("/proc/self/task").map_or(0, Iterator::count),
            tasks: runtime.metrics().num_alive_tasks(),
            processes: processes(sleep),
        }
    }

    /// Returns a description of the resources that exist in addition to those before; empty if
    /// there are none. Resources that are released in the background have this much time.
    pub(crate) fn left(&self, runtime: &Handle, sleep: &str, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        // Polled, because sockets and threads are released shortly after a run has ended.
        loop {
            let more = self.more(&Held::now(runtime, sleep));
            if more.is_empty() || Instant::now() > end {
                return more;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn more(&self, now: &Held) -> Vec<String> {
        let mut more = Vec::new();
        let count = |held: &Held| held.descriptors.values().sum::<usize>();
        // The total is compared and not each target, because a pool may replace one socket by
        // another.
        if count(now) > count(self) {
            let new = now.descriptors.iter().filter(|(to, times)| {
                self.descriptors.get(*to).is_none_or(|before| before < *times)
            });
            let new: Vec<String> = new.map(|(to, times)| format!("{times} × {to}")).collect();
            let (before, after) = (count(self), count(now));
            more.push(format!("descriptors: {before} before, {after} now: {}", new.join(", ")));
        }
        if now.threads > self.threads {
            more.push(format!("threads: {} before, {} now", self.threads, now.threads));
        }
        if now.tasks > self.tasks {
            more.push(format!("tasks: {} before, {} now", self.tasks, now.tasks));
        }
        if now.processes.len() > self.processes.len() {
            more.push(format!("processes: {}", now.processes.join(", ")));
        }
        more
    }
}

/// Returns the targets of the descriptors; sockets and pipes by kind, because their numbers change.
fn descriptors() -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Ok(to) = fs::read_link(entry.path()) else { continue };
        let to = to.to_string_lossy();
        let kind = to.split(":[").next().unwrap_or_default();
        *all.entry(kind.to_owned()).or_default() += 1;
    }
    all
}

/// Returns the descendants of this process and other processes with the unique `sleep`, without
/// those that have ended.
fn processes(sleep: &str) -> Vec<String> {
    let me = std::process::id();
    let mut parents = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The state and the parent follow the name, which may contain spaces and brackets.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, parent) = (fields.next(), fields.next().and_then(|id| id.parse().ok()));
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        parents.insert(pid, parent.unwrap_or(0));
        // A zombie of another process is not a leak of this one; a zombie child is.
        if state != Some("Z") || parent == Some(me) {
            lines.insert(pid, format!("{pid} {line}({})", state.unwrap_or("?")));
        }
    }
    let descends = |pid: &u32| {
        let mut at = *pid;
        // Processes start and end while they are read, so that parents could form a circle.
        for _ in 0..64 {
            match parents.get(&at) {
                Some(parent) if *parent == me => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    let held =
        lines.iter().filter(|(pid, line)| **pid != me && (descends(pid) || line.contains(sleep)));
    held.map(|(_, line)| line.clone()).collect()
}
