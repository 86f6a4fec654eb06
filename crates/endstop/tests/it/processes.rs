//! Processes that a test has started, found in `/proc`.
//!
//! Each test marks its processes with a number that only its own command lines have: the length of
//! their `sleep`.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// As long as no test waits in earnest.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A length for `sleep` that nobody else has.
pub(crate) fn marker() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes of other runs of these tests have other numbers.
    100_000_000 + (std::process::id() % 1_000_000) * 100 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The processes whose command line has exactly this word; zombies have no command line.
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

/// Children of this process that have ended and that nobody has reaped.
pub(crate) fn zombies() -> Vec<String> {
    let parent = std::process::id().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            // `pid (name) state parent …`; the name may hold anything.
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
            let mut fields = fields.split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&parent)
        })
        .collect()
}

/// Waits until it is so.
#[track_caller]
pub(crate) fn soon(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < end, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) async fn started(word: u32, count: usize) {
    let end = Instant::now() + SOON;
    while alive(word).len() < count {
        assert!(Instant::now() < end, "the processes did not start");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Nothing of it lives, and nobody is left to reap.
#[track_caller]
pub(crate) fn gone(word: u32) {
    soon("its processes are gone", || alive(word).is_empty());
    soon("its processes are reaped", || zombies().is_empty());
}
