//! Finds the processes that a test has started in `/proc`.
//!
//! Each test marks its processes with a number that occurs only in its own command lines: the
//! length of their `sleep`.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time after which a test counts as hanging. Long, because a busy machine is slow to start and to
/// reap processes; a process that is not stopped sleeps far longer.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Returns a length for `sleep` that no other test uses.
pub(crate) fn marker() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The process id separates test processes that run at the same time. No process has a thousand.
    2_000_000_000 + (std::process::id() % 1_000_000) * 1000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the processes that have exactly this word in their command line. Zombies have no command
/// line.
pub(crate) fn alive(word: u32) -> Vec<u32> {
    let word = word.to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
            })
        })
        .collect()
}

/// Returns the `stat` of each child of this process that has ended and was not reaped.
pub(crate) fn zombies() -> Vec<String> {
    let parent = std::process::id().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            // `pid (name) state parent …`; the name may contain any character.
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
            let mut fields = fields.split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&parent)
        })
        .collect()
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn soon(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < end, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until at least `count` processes have this word in their command line, and returns their ids. A
/// process that starts another program has no command line for a moment, but keeps its id.
pub(crate) async fn started(word: u32, count: usize) -> Vec<u32> {
    let end = Instant::now() + SOON;
    loop {
        let found = alive(word);
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < end, "the processes did not start");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until no process with this word is left and the children of this process are reaped.
#[track_caller]
pub(crate) fn gone(word: u32) {
    soon("its processes are gone", || alive(word).is_empty());
    // Only the zombies of this moment: tests that run at the same time make new ones all the time.
    let ended = zombies();
    soon("its processes are reaped", || {
        let now = zombies();
        ended.iter().all(|one| !now.contains(one))
    });
}
