//! A verifier that accepts, rejects, takes its time and hangs.
//!
//! ```text
//! let builder = builder.verifier(Picky::new(dice, &tally));
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use endstop::verifier::{Verification, VerificationFuture, Verifier};
use std::sync::{Arc, Mutex, PoisonError};

/// A verifier with random verdicts.
pub(crate) struct Picky {
    dice: Mutex<Dice>,
    tally: Arc<Tally>,
}

impl Picky {
    pub(crate) fn new(dice: &mut Dice, tally: &Arc<Tally>) -> Picky {
        let dice = Mutex::new(Dice::new(dice.below(u64::MAX), &[]));
        Picky { dice, tally: Arc::clone(tally) }
    }
}

impl Verifier for Picky {
    fn verify(&self, _answer: Option<String>) -> VerificationFuture<'_> {
        let (wait, way) = {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            (dice.millis(0, 10), dice.below(10))
        };
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            match way {
                0 => {
                    self.tally.code("verifier hangs");
                    std::future::pending().await
                }
                1..=4 => {
                    self.tally.code("verifier accepts");
                    Verification::accepted()
                }
                5 => {
                    self.tally.code("verifier prints much");
                    Verification::rejected("it failed\n".repeat(100_000))
                }
                _ => {
                    self.tally.code("verifier rejects");
                    Verification::rejected("it failed")
                }
            }
        })
    }
}
