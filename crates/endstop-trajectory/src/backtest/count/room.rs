//! The number of tasks that a backtest stores, which bounds its memory however many tasks there are.
//!
//! ```text
//! if room.shrinks(stored) { tally.shrink(room); }
//! ```
//!
//! All groups share a maximum. Each of them may store the same number, the largest power of two with which
//! the sum is within the maximum; so a small group stores all of its tasks next to a large one. As runs
//! arrive, that number only falls, and it depends on the set of tasks alone: neither on the order of the
//! runs nor on their division into parts.

use serde::{Deserialize, Serialize};

/// Numbers of stored tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backtest) struct Room {
    /// Tasks with the runs that candidates stop.
    pub(in crate::backtest) tasks: usize,
    /// Tasks of the families of a calibration.
    pub(in crate::backtest) scores: usize,
}

impl Room {
    /// The maximum over all groups. A task takes about 100 to 1,000 bytes, depending on the number of
    /// candidates that stop it; one of a family about 20.
    pub(in crate::backtest) const MOST: Room = Room { tasks: 1 << 15, scores: 1 << 18 };
    /// The minimum of a group: without any task, its runs would count as independent.
    const LEAST: usize = 16;

    /// Adds numbers.
    pub(in crate::backtest) fn plus(self, other: Room) -> Room {
        Room { tasks: self.tasks + other.tasks, scores: self.scores + other.scores }
    }

    /// Returns the smaller of each number.
    pub(in crate::backtest) fn min(self, other: Room) -> Room {
        Room { tasks: self.tasks.min(other.tasks), scores: self.scores.min(other.scores) }
    }

    /// Halves the room of a group if all groups together store too much. Returns `true` if it did.
    pub(in crate::backtest) fn shrinks(&mut self, stored: Room) -> bool {
        let halve = |own: &mut usize, stored: usize, most: usize| {
            let shrinks = stored > most && *own > Room::LEAST;
            *own = if shrinks { (*own / 2).max(Room::LEAST) } else { *own };
            shrinks
        };
        // Both, because the second must not depend on the first.
        halve(&mut self.tasks, stored.tasks, Room::MOST.tasks)
            | halve(&mut self.scores, stored.scores, Room::MOST.scores)
    }
}
