//! Tests of `write_file`: which files it writes, which it refuses, and which attributes it
//! preserves.

use endstop::tool::{Tool, ToolContext, ToolOutput, WriteFile};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

async fn write(place: &Path, content: &str) -> ToolOutput {
    let arguments = json!({"path": place, "content": content}).as_object().unwrap().clone();
    WriteFile::default().call(arguments, ToolContext::detached("call_1")).await
}

#[track_caller]
fn refused(output: &ToolOutput, why: &str) {
    assert!(output.is_error() && output.content.ends_with(why), "no {why:?} in {output:?}");
}

fn with_mode(place: &Path, content: &str, mode: u32) {
    fs::write(place, content).unwrap();
    fs::set_permissions(place, Permissions::from_mode(mode)).unwrap();
}

fn mode(place: &Path) -> u32 {
    place.metadata().unwrap().permissions().mode() & 0o7777
}

fn text(place: &Path) -> String {
    fs::read_to_string(place).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn special_files_are_refused_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink("pipe", at("link")).unwrap();
    for (name, why) in [
        ("pipe", "is a pipe, not a file"),
        ("link", "is a pipe, not a file"),
        ("socket", "is a socket, not a file"),
        ("folder", "is a folder"),
    ] {
        let before = at(name).symlink_metadata().unwrap().ino();
        refused(&write(&at(name), "x").await, why);
        assert_eq!(at(name).symlink_metadata().unwrap().ino(), before, "{name}");
    }
    // A separate device node, so that a failure does no harm. Creating one needs privileges.
    let made = Command::new("mknod").arg(at("null")).args(["c", "1", "3"]).output().unwrap();
    if made.status.success() {
        refused(&write(&at("null"), "x").await, "is a device, not a file");
        assert!(fs::read(at("null")).unwrap().is_empty());
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        if made.status.success() { 5 } else { 4 }
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn system_settings_are_not_written() {
    let place = Path::new("/proc/self/comm");
    let before = fs::read(place).unwrap();
    refused(&write(place, "x").await, "is a setting of the kernel, not a file");
    assert_eq!(fs::read(place).unwrap(), before);
}

#[tokio::test]
async fn read_only_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    with_mode(&file, "old", 0o444);
    refused(&write(&file, "new").await, "is read-only (mode 0444)");
    assert_eq!((text(&file).as_str(), mode(&file)), ("old", 0o444));
}

#[tokio::test]
async fn hard_links_stay_linked() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    with_mode(&one, "a longer old text", 0o640);
    fs::hard_link(&one, &other).unwrap();
    for new in ["short", "a new text that is longer than the old one", ""] {
        let output = write(&one, new).await;
        assert!(!output.is_error(), "{output:?}");
        assert_eq!((text(&one).as_str(), text(&other).as_str()), (new, new));
        assert_eq!(one.metadata().unwrap().ino(), other.metadata().unwrap().ino());
    }
    assert_eq!(mode(&one), 0o640);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left of the writing");
}

#[tokio::test]
async fn privileged_bits_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (renamed, linked) = (dir.path().join("renamed"), dir.path().join("linked"));
    for file in [&renamed, &linked] {
        with_mode(file, "old", 0o6755);
    }
    fs::hard_link(&linked, dir.path().join("link")).unwrap();
    for file in [&renamed, &linked] {
        assert!(!write(file, "new").await.is_error());
        assert_eq!((text(file).as_str(), mode(file)), ("new", 0o755), "{file:?}");
    }
}

#[tokio::test]
async fn owner_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    with_mode(&file, "old", 0o644);
    // Only root can give a file away; for other users the owner is themselves.
    let owner = if is_root() { 65534 } else { file.metadata().unwrap().uid() };
    std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
    assert!(!write(&file, "new").await.is_error());
    assert_eq!((text(&file).as_str(), file.metadata().unwrap().uid()), ("new", owner));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn extended_attributes_are_kept() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "old").unwrap();
    // Some file systems do not support them.
    if setxattr(&file, "user.note", b"mine", XattrFlags::empty()).is_err() {
        return;
    }
    assert!(!write(&file, "new").await.is_error());
    let mut value = [0; 16];
    let length = getxattr(&file, "user.note", &mut value).unwrap();
    assert_eq!((text(&file).as_str(), &value[..length]), ("new", b"mine".as_slice()));
}

#[tokio::test]
async fn private_text_is_never_exposed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    with_mode(&file, "old", 0o600);
    let (seen, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (watched, see, end) = (dir.path().to_owned(), Arc::clone(&seen), Arc::clone(&done));
    let watcher = std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            for entry in fs::read_dir(&watched).unwrap().flatten() {
                // It may have been renamed since.
                if let Ok(about) = entry.path().symlink_metadata() {
                    assert_eq!(about.permissions().mode() & 0o077, 0, "{entry:?}");
                    see.fetch_add(u32::from(entry.path() != file_in(&watched)), Ordering::Relaxed);
                }
            }
        }
    });
    let content = "x".repeat(16 << 20);
    while seen.load(Ordering::Relaxed) < 3 && !watcher.is_finished() {
        assert!(!write(&file, &content).await.is_error());
    }
    done.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    assert_eq!(mode(&file), 0o600);
}

fn file_in(dir: &Path) -> std::path::PathBuf {
    dir.join("file")
}

#[tokio::test]
async fn dangling_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("missing", &link).unwrap();
    refused(&write(&link, "x").await, "is a broken symbolic link");
    assert!(link.is_symlink() && !dir.path().join("missing").exists());
}
