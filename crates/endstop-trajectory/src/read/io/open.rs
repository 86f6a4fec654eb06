//! Opens files that a walk found, so that no entry of a folder can block the reader.
//!
//! ```no_run
//! use endstop_trajectory::read::open_regular;
//! let file = open_regular("runs/a.json".as_ref())?; // an error for a pipe or a device
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A link in a folder can lead to a pipe, a device, or a kernel file such as `/proc/kmsg`, and
//! reading it can block forever. The type is checked after opening, because the entry may have been
//! replaced since it was listed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Take};
use std::path::Path;

/// Opens a regular file, without waiting for a writer if it turns out to be a pipe.
///
/// The reader ends at the length that the file had when it was opened. Kernel files have a length
/// of 0 and are therefore never read, and a file that is still being written has an end.
///
/// # Errors
///
/// The file cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<Take<File>> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        // `O_NONBLOCK`, because opening a pipe for reading otherwise waits until a writer opens it.
        use rustix::fs::OFlags;
        // A terminal must not become the controlling one either.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.cast_signed());
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        let what = "not a regular file: give a file, or a folder of files";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    #[cfg(target_os = "linux")]
    if found.len() == 0
        && let Ok(system) = rustix::fs::fstatfs(&file)
        && system.f_type == rustix::fs::PROC_SUPER_MAGIC
    {
        let what = "files under /proc are not read; copy the file to a regular folder";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(file.take(found.len()))
}

/// Opens a file that the user named. Pipes and devices are allowed here, because the user chose
/// them.
pub(crate) fn open_named(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if std::fs::metadata(path)?.is_file() {
        return Ok(Box::new(open_regular(path)?));
    }
    Ok(Box::new(File::open(path)?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn special_files_fail_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("/proc/kmsg", at("kmsg")).unwrap();
        symlink("/proc/self/status", at("status")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for name in ["zero", "kmsg", "status", "socket", "pipe"] {
            assert!(open_regular(&at(name)).is_err(), "{name}");
        }
        std::fs::write(at("run.json"), "{}").unwrap();
        symlink(at("run.json"), at("link.json")).unwrap();
        let mut text = String::new();
        open_regular(&at("link.json")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
    }
}
