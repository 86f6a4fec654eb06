//! What a process holds: descriptors, threads, tasks, other processes.
//!
//! ```text
//! let before = Held::now(&runtime, "30.4711");
//! // … runs …
//! let more = before.left(&runtime, "30.4711"); // waits a little, and names what is there still
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long what goes by itself may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What this process holds now.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Where descriptors lead, and how often.
    descriptors: BTreeMap<String, usize>,
    threads: usize,
    tasks: usize,
    /// Command lines of what this process started, and of whoever sleeps so.
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

    /// What there is more than before, in words; nothing where all has gone.
    pub(crate) fn left(&self, runtime: &Handle, sleep: &str) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
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

/// Where descriptors lead: sockets and pipes by their kind, for their numbers change.
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

/// Who descends from this process, and who else sleeps so, but for those that have ended.
fn processes(sleep: &str) -> Vec<String> {
    let me = std::process::id();
    let mut parents = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // After the name, which may hold anything: the state, then the parent.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, parent) = (fields.next(), fields.next().and_then(|id| id.parse().ok()));
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        parents.insert(pid, parent.unwrap_or(0));
        if state != Some("Z") || parent == Some(me) {
            lines.insert(pid, format!("{pid} {line}({})", state.unwrap_or("?")));
        }
    }
    let descends = |pid: &u32| {
        let mut at = *pid;
        // Processes come and go while they are read: a circle is no line.
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
