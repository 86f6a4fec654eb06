//! Limits the memory of parsed records before they are parsed.
//!
//! ```text
//! let _turn = memory::room_for(record)?;   // held while the record is read
//! ```
//!
//! A failed allocation aborts the process and loses the report about all other files. Records whose
//! estimated weight is too large are therefore refused, and heavy records are decoded one at a
//! time.

use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Minimum weight of a record that is decoded alone.
const HEAVY: u64 = 64 << 20;

/// The lock held while a heavy record is decoded.
pub(crate) type Turn = MutexGuard<'static, ()>;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits until a file of lines may be decoded; light ones do not wait. The reader checks each line.
pub(crate) fn turn_for(file: &[u8]) -> Option<Turn> {
    let is_heavy = bounded_json::check(file, HEAVY).is_err();
    is_heavy.then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until a heavy record may be decoded; light records do not wait.
///
/// # Errors
///
/// The record weighs more than the limit, or more than the available memory.
pub(crate) fn room_for(record: &[u8]) -> Result<Option<Turn>, Problem> {
    match bounded_json::check(record, HEAVY) {
        Ok(()) => return Ok(None),
        Err(heavy) if heavy.weight > bounded_json::MOST => {
            // Report the fixed limit, not the threshold of 64 MiB that the record also exceeds.
            let heavy = bounded_json::TooHeavy { most: Some(bounded_json::MOST), ..heavy };
            return Err(too_heavy(&heavy));
        }
        Err(_) => {}
    }
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Check again: the previous holder of the lock has freed its memory by now.
    bounded_json::check(record, bounded_json::MOST).map_err(|heavy| too_heavy(&heavy))?;
    Ok(Some(turn))
}

fn too_heavy(heavy: &bounded_json::TooHeavy) -> Problem {
    Problem::new(ProblemKind::TooManyValues, format!("{heavy}; not read"))
}
