//! The shares of limits that a run has passed, for notices and for the warning of the model.
//!
//! ```
//! use endstop_core::{Limit, Near};
//! let mut near = Near::default();
//! let passed = |near: &mut Near, turns: f64| near.crossed([(Limit::MaxTurns, turns, 10.0)], &[80, 95]);
//! assert!(passed(&mut near, 7.0).is_empty());
//! assert_eq!(passed(&mut near, 8.0)[0].percent, 80);
//! assert!(passed(&mut near, 9.0).is_empty(), "each share is passed once");
//! ```

use crate::limits::{Limit, TABLE};

/// The shares of limits that a run has passed.
#[derive(Clone, Debug)]
pub struct Near {
    /// The highest share that was passed, in percent, in the order of the table of limits.
    highest: [u8; TABLE.len()],
}

impl Default for Near {
    fn default() -> Near {
        Near { highest: [0; TABLE.len()] }
    }
}

/// A share of a limit that a run has passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// The limit.
    pub limit: Limit,
    /// The share in percent.
    pub percent: u8,
    /// The amount that is used.
    pub used: f64,
    /// The limit's value.
    pub of: f64,
}

impl Near {
    /// Returns the shares that are passed now for the first time, from the used amounts of limits and their values. Of
    /// several of one limit it is the highest, because the others are no news any more.
    pub fn crossed(
        &mut self,
        amounts: impl IntoIterator<Item = (Limit, f64, f64)>,
        percentages: &[u8],
    ) -> Vec<Crossing> {
        let mut crossed = Vec::new();
        for (limit, used, of) in amounts {
            // The product, because a share such as 0.8 has no exact representation. A limit of 0 has no share.
            let is_crossed = |percent: &&u8| of > 0.0 && used * 100.0 >= of * f64::from(**percent);
            let highest = &mut self.highest[limit as usize];
            match percentages.iter().rev().find(is_crossed) {
                Some(percent) if percent > highest => {
                    *highest = *percent;
                    crossed.push(Crossing { limit, percent: *percent, used, of });
                }
                _ => {}
            }
        }
        crossed
    }
}
