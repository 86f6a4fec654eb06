//! Whether the values of a record fit in memory, asked before they are parsed.
//!
//! ```ignore
//! let _turn = memory::room_for(record)?;   // held while the record is read
//! ```
//!
//! An allocation that fails ends the process, and with it the report about all other files. So heavy
//! records are refused by their estimated weight, and read one at a time.

use super::{Problem, ProblemKind};
use endstop_core::bounded_json;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Records from this weight on are read one at a time.
const HEAVY: u64 = 64 << 20;

/// The turn to read a heavy record.
pub(super) type Turn = MutexGuard<'static, ()>;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits until the values of a record can be read; light records need not wait.
///
/// # Errors
///
/// The record weighs more than is read, or more than the system has memory for.
pub(super) fn room_for(record: &[u8]) -> Result<Option<Turn>, Problem> {
    match bounded_json::check(record, HEAVY) {
        Ok(()) => return Ok(None),
        Err(heavy) if heavy.weight > bounded_json::MOST => {
            let heavy = bounded_json::TooHeavy { most: Some(bounded_json::MOST), ..heavy };
            return Err(too_heavy(&heavy));
        }
        Err(_) => {}
    }
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // What the record before it took has been given back by now.
    bounded_json::check(record, bounded_json::MOST).map_err(|heavy| too_heavy(&heavy))?;
    Ok(Some(turn))
}

fn too_heavy(heavy: &bounded_json::TooHeavy) -> Problem {
    Problem::new(ProblemKind::TooManyValues, format!("{heavy}; not read"))
}
