//! The value of `max_rate`: dollars or tokens per minute or hour.
//!
//! ```
//! use endstop_core::Rates;
//! let rates: Rates = "$2/h, 100k tokens/m".parse().unwrap();
//! assert_eq!(rates.to_string(), "$2/h,100000 tokens/m");
//! assert!("$2/day".parse::<Rates>().is_err());
//! ```

use crate::usage::NanoUsd;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The quantity that a rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// US dollars.
    Usd,
    /// Tokens.
    Tokens,
}

/// The time over which a rate is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    Minute,
    Hour,
}

impl Per {
    pub(crate) const ALL: [Per; 2] = [Per::Minute, Per::Hour];

    /// The length of the time.
    pub(crate) const fn length(self) -> Duration {
        match self {
            Per::Minute => Duration::from_secs(60),
            Per::Hour => Duration::from_secs(3600),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Per::Minute => "minute",
            Per::Hour => "hour",
        }
    }

    const fn letter(self) -> &'static str {
        match self {
            Per::Minute => "m",
            Per::Hour => "h",
        }
    }

    fn read(text: &str) -> Option<Per> {
        match text {
            "m" | "min" | "minute" => Some(Per::Minute),
            "h" | "hour" => Some(Per::Hour),
            _ => None,
        }
    }
}

/// All rates, in the order in which they are stored and shown.
const ROWS: [(Quantity, Per); 4] = [
    (Quantity::Usd, Per::Minute),
    (Quantity::Usd, Per::Hour),
    (Quantity::Tokens, Per::Minute),
    (Quantity::Tokens, Per::Hour),
];

/// Rates of spending. One that is not named has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Nano-dollars or tokens for each row of [`ROWS`]; 0: no limit.
    most: [u64; ROWS.len()],
}

impl Rates {
    /// No rate.
    pub(super) const NONE: Rates = Rates { most: [0; ROWS.len()] };

    /// Returns the rates, each with its amount in nano-dollars or tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Quantity, Per, u64)> + '_ {
        let rows = ROWS.iter().zip(self.most).filter(|(_, most)| *most > 0);
        rows.map(|((quantity, per), most)| (*quantity, *per, most))
    }

    /// `true` if a rate limits money.
    pub fn bounds_cost(&self) -> bool {
        self.iter().any(|(quantity, ..)| quantity == Quantity::Usd)
    }

    /// `true` if these permit no more than the others.
    fn is_within(&self, other: &Rates) -> bool {
        self.most.iter().zip(other.most).all(|(own, other)| other == 0 || *own > 0 && *own <= other)
    }
}

impl PartialOrd for Rates {
    fn partial_cmp(&self, other: &Rates) -> Option<Ordering> {
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

/// Spells an amount of a rate, without its time.
pub(crate) fn amount(quantity: Quantity, most: u64) -> String {
    match quantity {
        Quantity::Usd => {
            let (whole, part) = (most / 1_000_000_000, most % 1_000_000_000);
            let part = format!("{part:09}");
            match part.trim_end_matches('0') {
                "" => format!("${whole}"),
                part => format!("${whole}.{part}"),
            }
        }
        Quantity::Tokens => format!("{most} tokens"),
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (quantity, per, most)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}/{}", amount(quantity, most), per.letter())?;
        }
        Ok(())
    }
}

/// Reads a number of tokens such as `100000`, `100k` or `1.5M`.
fn tokens(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    let number: f64 = number.trim().parse().ok()?;
    let tokens = number * factor;
    // Compared before the conversion; larger numbers are not exact.
    ((1.0..=1e15).contains(&tokens) && tokens.fract() == 0.0).then_some(tokens as u64)
}

/// Reads a number of dollars as nano-dollars.
fn dollars(text: &str) -> Option<u64> {
    let usd: f64 = text.trim().parse().ok()?;
    let nanos = (usd > 0.0 && usd <= 1e9).then(|| NanoUsd::from_usd(usd).0);
    nanos.filter(|nanos| *nanos > 0)
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Rates, String> {
        let mut rates = Rates::NONE;
        for part in text.split(',') {
            let part = part.trim();
            let (most, per) = part
                .rsplit_once('/')
                .ok_or_else(|| format!("`{part}` names no time; add `/m` or `/h`"))?;
            let per = Per::read(per.trim())
                .ok_or_else(|| format!("the time of `{part}` is neither `m` nor `h`"))?;
            let most = most.trim();
            let (quantity, most) = match most.strip_prefix('$') {
                Some(usd) => (Quantity::Usd, dollars(usd)),
                None => match most.strip_suffix("tokens") {
                    Some(number) => (Quantity::Tokens, tokens(number)),
                    // A shell replaces `$2` by nothing.
                    None => {
                        return Err(format!(
                            "`{part}` has neither `$` before its number nor `tokens` after it; in a shell, put the \
                             value in single quotes"
                        ));
                    }
                },
            };
            let most = most.ok_or_else(|| {
                format!("`{part}` has no amount above zero; to make no call, set a ceiling of 0")
            })?;
            // Each row is in the list.
            let row = ROWS.iter().position(|row| *row == (quantity, per)).unwrap_or_default();
            if rates.most[row] > 0 {
                return Err(format!("`{part}` is a second rate of the same kind"));
            }
            rates.most[row] = most;
        }
        Ok(rates)
    }
}

impl Serialize for Rates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rates, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
