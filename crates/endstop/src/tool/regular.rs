//! Opens regular files only, and handles their metadata: owner, permissions and extended
//! attributes.
//!
//! ```text
//! let file = regular::open_to_read(Path::new("Cargo.toml"))?;
//! regular::open_to_read(Path::new("/dev/zero"))?; // error: is a device, not a file
//! ```
//!
//! A pipe or a device may be endless, opening it can already have an effect, and it must not be
//! replaced by a file. So the type is checked before the file is opened, and again afterwards.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file for reading.
pub(super) fn open_to_read(place: &Path) -> io::Result<File> {
    check(place.metadata()?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    flags(&mut options, false);
    let file = options.open(place)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a regular file for writing without changing its content. `place` is not a link.
pub(super) fn open_to_write(place: &Path) -> io::Result<File> {
    let about = place.symlink_metadata()?;
    check(about.file_type())?;
    // Refuse for root as well, although the system would allow it to write.
    if about.permissions().readonly() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, read_only(&about)));
    }
    let mut options = OpenOptions::new();
    options.write(true);
    flags(&mut options, true);
    let file = options.open(place)?;
    check(file.metadata()?.file_type())?;
    if is_setting(&file) {
        let problem = "is a setting of the kernel, not a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(file)
}

/// `true` if the file is in a file system of kernel settings (`/proc`, `/sys`). Its files look like
/// regular ones, but a write is a command to the kernel.
#[cfg(target_os = "linux")]
fn is_setting(file: &File) -> bool {
    // From `linux/magic.h`: proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, configfs,
    // efivarfs.
    const KINDS: [u32; 9] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x0027_e0eb,
        0x6367_7270,
        0x6265_6570,
        0xde5e_81e4,
    ];
    // Compare 32 bits, because the field is wider or signed on some machines.
    rustix::fs::fstatfs(file).is_ok_and(|about| KINDS.contains(&(about.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_setting(_: &File) -> bool {
    false
}

#[cfg(unix)]
fn read_only(about: &Metadata) -> String {
    use std::os::unix::fs::PermissionsExt;
    format!("is read-only (mode {:04o})", about.permissions().mode() & 0o7777)
}

#[cfg(not(unix))]
fn read_only(_: &Metadata) -> String {
    "is read-only".to_owned()
}

fn check(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let what = if kind.is_fifo() {
            "a pipe"
        } else if kind.is_socket() {
            "a socket"
        } else if kind.is_block_device() || kind.is_char_device() {
            "a device"
        } else {
            "of an unknown kind"
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is {what}, not a file")))
    }
    #[cfg(not(unix))]
    Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"))
}

/// Opens without blocking, in case another process swaps the file for a pipe after the check.
#[cfg(unix)]
fn flags(options: &mut OpenOptions, no_link: bool) {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if no_link {
        flags |= OFlags::NOFOLLOW;
    }
    // The flags of every Unix fit into 31 bits.
    options.custom_flags(flags.bits().try_into().unwrap_or(0));
}

#[cfg(not(unix))]
fn flags(_: &mut OpenOptions, _: bool) {}

/// The set-user-ID and set-group-ID bits, which run a program as its owner or group.
#[cfg(unix)]
const PRIVILEGES: u32 = 0o6000;

/// `true` if a new file can replace this one: it has a single name, and no attributes that would
/// get lost.
#[cfg(unix)]
pub(super) fn may_be_replaced(old: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(old.metadata()?.nlink() == 1 && !has_attributes(old)?)
}

/// `true` if the file has extended attributes that a new file would not get, such as an access
/// control list or user attributes. Those in `security.` are set by the system.
#[cfg(target_os = "linux")]
fn has_attributes(file: &File) -> io::Result<bool> {
    use rustix::io::Errno;
    let mut names = Vec::with_capacity(64 * 1024);
    match rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => Ok(names
            .split(|byte| *byte == 0)
            .any(|name| !name.is_empty() && !name.starts_with(b"security."))),
        // There are more than fit.
        Err(Errno::RANGE) => Ok(true),
        // The file system has no attributes.
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(false),
        // After any other error the file may have some, and a new file would lose them.
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn has_attributes(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Gives a new file the owner and permissions of an old one, without the set-ID bits. Returns
/// `false` if this user may not set that owner.
#[cfg(unix)]
pub(super) fn take_after(new: &File, old: &File) -> io::Result<bool> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let (is, was) = (new.metadata()?, old.metadata()?);
    // Changing the owner needs privileges, so skip it if the owner is already right.
    if (is.uid(), is.gid()) != (was.uid(), was.gid())
        && fchown(new, Some(was.uid()), Some(was.gid())).is_err()
    {
        return Ok(false);
    }
    let mode = was.permissions().mode() & 0o7777 & !PRIVILEGES;
    new.set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(true)
}

/// Clears the set-ID bits of a file whose content is about to change.
#[cfg(unix)]
pub(super) fn drop_privileges(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & PRIVILEGES == 0 {
        return Ok(());
    }
    file.set_permissions(std::fs::Permissions::from_mode(mode & !PRIVILEGES))
}

/// `true` if the path still names this file.
#[cfg(unix)]
pub(super) fn is_still(place: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (place.symlink_metadata(), file.metadata()) {
        (Ok(there), Ok(here)) => (there.dev(), there.ino()) == (here.dev(), here.ino()),
        _ => false,
    }
}

/// Allocates this many bytes for a file, or fails and leaves it unchanged.
#[cfg(any(target_os = "linux", target_os = "freebsd", target_os = "android"))]
pub(super) fn make_room(file: &File, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        // Some file systems cannot allocate in advance; the write itself then reports a full disk.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "freebsd", target_os = "android")))]
pub(super) fn make_room(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
mod other {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(crate) fn may_be_replaced(_: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub(crate) fn take_after(_: &File, _: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub(crate) fn drop_privileges(_: &File) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn is_still(_: &Path, _: &File) -> bool {
        true
    }
}

#[cfg(not(unix))]
pub(super) use other::{drop_privileges, is_still, may_be_replaced, take_after};
