//! Seals the settings of stored runs, so that runs that this user started are recognised in a
//! journal at any path. The seal is a MAC over the settings and the journal's path; its key is in
//! the user's state folder.
//!
//! A process that can write the journal can copy a seal, but not to another path and not to other
//! commands, hosts or tools, because the MAC covers them.

use super::{file, owner};
use crate::config::state::state_folder;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::path::Path;

/// Length of the key in bytes.
const KEY: usize = 32;

/// The member of a run's settings that holds the seal.
pub(crate) const MEMBER: &str = "seal";

/// Computes the seal of these settings. Returns `None` if there is no key that belongs to the user
/// alone.
pub(crate) fn of(settings: &Value, journal: &Path) -> Option<String> {
    let mac = mac(settings, journal, true)?;
    let mut text = String::new();
    for byte in mac.finalize().into_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// `true` if the settings carry this user's seal for this journal.
pub(crate) fn fits(settings: &Value, journal: &Path) -> bool {
    let text = settings.get(MEMBER).and_then(Value::as_str).unwrap_or_default();
    let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digits).collect();
    // `verify_slice` compares in constant time.
    // A missing key is not created, because no seal fits a new one.
    let known = bytes.zip(mac(settings, journal, false));
    known.is_some_and(|(bytes, mac)| mac.verify_slice(&bytes).is_ok())
}

fn mac(settings: &Value, journal: &Path, make: bool) -> Option<Hmac<Sha256>> {
    let mut settings = settings.clone();
    // The seal cannot cover itself. `shift_remove` keeps the order of the other members, on which
    // the serialised bytes depend.
    settings.as_object_mut()?.shift_remove(MEMBER);
    // The seal must fit by every path that leads to the same file.
    let journal = journal.canonicalize().ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key(make)?).ok()?;
    mac.update(journal.as_os_str().as_encoded_bytes());
    // A separator, so that a longer path with shorter settings cannot give the same bytes.
    mac.update(b"\0");
    mac.update(&serde_json::to_vec(&settings).ok()?);
    Some(mac)
}

/// Reads the user's key. With `make`, a missing key is created.
fn key(make: bool) -> Option<Vec<u8>> {
    let folder = state_folder()?;
    let path = folder.join("seal.key");
    if make && std::fs::symlink_metadata(&path).is_err() {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&folder).ok()?;
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes).ok()?;
        // Written to a temporary file and renamed, so that another process never reads a partial
        // key.
        let mut new = tempfile::NamedTempFile::new_in(&folder).ok()?;
        new.write_all(&bytes).ok()?;
        new.as_file().sync_all().ok()?;
        // If another process was first, its key stays and is read below.
        let _ = new.persist_noclobber(&path);
    }
    let (bytes, metadata) = file::regular(&path, KEY as u64).ok()?;
    let folder = std::fs::metadata(&folder).ok()?;
    let own = owner::problem(&metadata, owner::ALL).is_none()
        && owner::problem(&folder, owner::WRITE).is_none();
    (own && bytes.len() == KEY).then_some(bytes)
}
