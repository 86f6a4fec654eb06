//! The studentised bootstrap over tasks, with a fixed seed: the same runs give the same interval.
//!
//! ```text
//! let [low, high] = quantiles(&clusters);     // of (estimate - truth) / standard error
//! ```

use super::cluster::{Cluster, ratio};

/// Number of samples that are drawn.
const DRAWS: usize = 1999;
/// Maximum number of clusters that are drawn from. With more the distribution is normal enough.
pub(super) const MOST: usize = 5_000;

/// Returns the 2.5 % and the 97.5 % quantile of the error of the estimate in standard errors, as
/// samples of these clusters show it. `None` if too many samples have no spread.
pub(super) fn quantiles(clusters: &[Cluster]) -> Option<[f64; 2]> {
    let truth = ratio(clusters.iter().copied())?.value;
    let mut random = Random(0x5eed_00fe_4d57_0b50);
    let mut errors: Vec<f64> = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let start = random.clone();
        // The sample is drawn twice from the same numbers instead of being stored.
        let drawn = |mut random: Random| {
            (0..clusters.len()).map(move |_| clusters[random.below(clusters.len())])
        };
        for _ in 0..clusters.len() {
            random.below(clusters.len());
        }
        if let Some(sample) = ratio(drawn(start)).filter(|sample| sample.error > 0.0) {
            errors.push((sample.value - truth) / sample.error);
        }
    }
    if errors.len() < DRAWS * 9 / 10 {
        return None;
    }
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
    Some([at(0.025), at(0.975)])
}

/// SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The high bits of the product are uniform enough for any number of tasks.
        ((u128::from(mixed) * most as u128) >> 64) as usize
    }
}
