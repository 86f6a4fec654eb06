//! Counts as bytes, so that another process can add them up.
//!
//! ```text
//! {"format":"endstop-tally","version":2,"endstop":"0.9.0","digest":"…","settings":{…}}
//! (zstd) {"counts":{…},"reading":{…},"ids":[…]}
//! ```
//!
//! The first line states what was counted. Counts of another version of this format, of another
//! release, whose rules may differ, or with other settings are refused.

use super::calibrate::family::Family;
use super::count::tallies::{GroupCounts, Tallies};
use super::reading::{Ids, Reading};
use super::settings::Settings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read as _;

/// The version of the format; a change of the counts increases it.
const VERSION: u32 = 2;
/// The name of the format.
const FORMAT: &str = "endstop-tally";
/// The release that counts; its rules may differ from those of others.
const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Maximum length of unpacked counts. A small file can unpack to any length.
const LONGEST: u64 = 1 << 30;

/// Counts that cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("no counts to merge")]
    Empty,
    /// The bytes are not counts, or are damaged.
    #[error("part {part}: invalid counts: {problem}")]
    Invalid {
        /// The number of the part, from 1.
        part: usize,
        /// The problem.
        problem: String,
    },
    /// The counts were written by another version of Endstop.
    #[error(
        "part {part}: counted by endstop {found}, but this is endstop {RELEASE}; count all parts \
         with one version"
    )]
    Version {
        /// The number of the part, from 1.
        part: usize,
        /// The version that wrote the counts, and the version of its format.
        found: String,
    },
    /// The counts have other settings than the first part.
    #[error(
        "part {part}: counted with other settings ({found}) than part 1 ({first}): {differs}; count \
         all parts with the same settings"
    )]
    Settings {
        /// The number of the part, from 1.
        part: usize,
        /// The digest of its settings.
        found: String,
        /// The digest of the settings of the first part.
        first: String,
        /// The first difference.
        differs: String,
    },
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header<S> {
    format: String,
    version: u32,
    endstop: String,
    digest: String,
    settings: S,
}

/// The part of the header that all versions have.
#[derive(Deserialize)]
struct Identity {
    format: String,
    version: u32,
    endstop: String,
}

#[derive(Serialize)]
struct Body<'b> {
    counts: &'b GroupCounts,
    reading: &'b Reading,
    ids: &'b Ids,
}

#[derive(Deserialize)]
struct OwnedBody {
    counts: GroupCounts,
    reading: Reading,
    ids: Ids,
}

/// Writes counts.
pub(super) fn pack(tallies: &Tallies, reading: &Reading) -> Vec<u8> {
    let body = Body { counts: &tallies.counts, reading, ids: &reading.ids };
    seal(FORMAT, &tallies.settings, tallies.settings.digest(), &body)
}

/// Writes counts of a format, with the settings that all parts need to share.
pub(crate) fn seal(
    format: &str,
    settings: &impl Serialize,
    digest: String,
    body: &impl Serialize,
) -> Vec<u8> {
    let mut bytes = json(&Header {
        format: format.to_owned(),
        version: VERSION,
        endstop: RELEASE.to_owned(),
        digest,
        settings,
    });
    bytes.push(b'\n');
    // Level 3 halves the size again in comparison with level 1, and writing to memory cannot fail.
    bytes.extend(zstd::encode_all(&*json(body), 3).unwrap_or_default());
    bytes
}

/// Serialises a value of this file.
fn json(value: &impl Serialize) -> Vec<u8> {
    // Only maps with keys that are not strings and failing `Serialize` implementations are errors;
    // these types have neither.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads counts of a format; `part` is their number for errors. Returns the settings with their
/// digest, and the counts.
pub(crate) fn unseal<S: DeserializeOwned, B: DeserializeOwned>(
    format: &str,
    bytes: &[u8],
    part: usize,
) -> Result<(S, String, B), MergeError> {
    let invalid = |problem: &dyn std::fmt::Display| MergeError::invalid(part, problem);
    let line = bytes.iter().position(|byte| *byte == b'\n');
    let (header, body) = bytes.split_at(line.ok_or_else(|| invalid(&"no header"))?);
    let identity: Identity = serde_json::from_slice(header).map_err(|error| invalid(&error))?;
    if identity.format != format {
        return Err(invalid(&format_args!("the format is `{}`", identity.format.escape_debug())));
    }
    if (identity.version, &*identity.endstop) != (VERSION, RELEASE) {
        let found = format!("{} (format {})", identity.endstop.escape_debug(), identity.version);
        return Err(MergeError::Version { part, found });
    }
    let header: Header<S> = serde_json::from_slice(header).map_err(|error| invalid(&error))?;
    let unpacked = zstd::Decoder::new(&body[1..]).map_err(|error| invalid(&error))?;
    let mut text = Vec::new();
    let read = unpacked.take(LONGEST + 1).read_to_end(&mut text);
    if read.map_err(|error| invalid(&error))? as u64 > LONGEST {
        return Err(invalid(&format_args!("longer than {} MiB", LONGEST >> 20)));
    }
    let body = serde_json::from_slice(&text).map_err(|error| invalid(&error))?;
    Ok((header.settings, header.digest, body))
}

/// Reads counts; `part` is their number for errors.
pub(super) fn unpack(bytes: &[u8], part: usize) -> Result<(Tallies, Reading), MergeError> {
    let invalid = |problem: &dyn std::fmt::Display| MergeError::invalid(part, problem);
    let (settings, digest, body): (Settings, String, OwnedBody) = unseal(FORMAT, bytes, part)?;
    if settings.digest() != digest {
        return Err(invalid(&"the digest does not match the settings"));
    }
    let families = settings.families().map_err(|problem| invalid(&problem))?;
    let levels: Vec<usize> = families.iter().map(Family::levels).collect();
    if !body.counts.fits(settings.candidates.len(), &levels) {
        return Err(invalid(&"the counts do not match the candidates"));
    }
    let mut reading = Reading { ids: body.ids, ..body.reading };
    reading.ids.shrink(Reading::IDS);
    let mut tallies = Tallies::new(settings);
    // Added, which bounds what a damaged part holds, and counts it.
    tallies.add(Tallies { settings: tallies.settings.clone(), counts: body.counts });
    Ok((tallies, reading))
}

impl MergeError {
    pub(crate) fn invalid(part: usize, problem: &dyn std::fmt::Display) -> MergeError {
        MergeError::Invalid { part, problem: problem.to_string() }
    }
}

/// Describes the first difference of two settings.
pub(super) fn difference(first: &Settings, other: &Settings) -> String {
    let pairs = first.candidates.iter().zip(&other.candidates);
    for ((name, spec), (other_name, other_spec)) in pairs {
        if name != other_name {
            return format!("candidate `{other_name}` instead of `{name}`");
        }
        if spec != other_spec {
            return format!("candidate `{name}` has another meaning");
        }
    }
    if first.candidates.len() != other.candidates.len() {
        let (own, others) = (first.candidates.len(), other.candidates.len());
        return format!("{others} candidates instead of {own}");
    }
    if first.group_by != other.group_by {
        return "other groups of runs".to_owned();
    }
    "another calibration".to_owned()
}
