//! Marks the runs that this user started, so that they are recognised in a journal at any place. The
//! mark is a MAC over a run's settings and the journal's path; its key is in the user's state folder.
//!
//! ```ignore
//! settings["seal"] = seal::of(&settings, journal).into();
//! assert!(seal::fits(&settings, journal));
//! ```
//!
//! Whoever can write the journal can copy a mark, but not to another path and not to other commands,
//! hosts or tools.

use super::{file, owner};
use crate::kept;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::path::Path;

/// The key's length in bytes.
const KEY: usize = 32;

/// The member of a run's settings that holds the mark.
pub(crate) const MEMBER: &str = "seal";

/// The mark of these settings. `None` if there is no key that is the user's alone.
pub(crate) fn of(settings: &Value, journal: &Path) -> Option<String> {
    let mac = mac(settings, journal, true)?;
    let mut text = String::new();
    for byte in mac.finalize().into_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// Reports whether these settings have the mark of this user for this journal.
pub(crate) fn fits(settings: &Value, journal: &Path) -> bool {
    let text = settings.get(MEMBER).and_then(Value::as_str).unwrap_or_default();
    let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digits).collect();
    let known = bytes.zip(mac(settings, journal, false));
    known.is_some_and(|(bytes, mac)| mac.verify_slice(&bytes).is_ok())
}

fn mac(settings: &Value, journal: &Path, make: bool) -> Option<Hmac<Sha256>> {
    let mut settings = settings.clone();
    settings.as_object_mut()?.shift_remove(MEMBER);
    let journal = journal.canonicalize().ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key(make)?).ok()?;
    mac.update(journal.as_os_str().as_encoded_bytes());
    mac.update(b"\0");
    mac.update(&serde_json::to_vec(&settings).ok()?);
    Some(mac)
}

/// The user's key; made at its first use.
fn key(make: bool) -> Option<Vec<u8>> {
    let folder = kept::state_folder()?;
    let path = folder.join("seal.key");
    if make && std::fs::symlink_metadata(&path).is_err() {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&folder).ok()?;
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes).ok()?;
        let mut new = tempfile::NamedTempFile::new_in(&folder).ok()?;
        new.write_all(&bytes).ok()?;
        new.as_file().sync_all().ok()?;
        // Another process may have been first: its key is the one.
        let _ = new.persist_noclobber(&path);
    }
    let (bytes, metadata) = file::regular(&path, KEY as u64).ok()?;
    let folder = std::fs::metadata(&folder).ok()?;
    let own = owner::problem(&metadata, owner::ALL).is_none()
        && owner::problem(&folder, owner::WRITE).is_none();
    (own && bytes.len() == KEY).then_some(bytes)
}
