//! The periods of ceilings: hours, days, weeks and months of UTC.

pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;

/// A period of UTC for which a ceiling holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// From the full hour.
    Hour,
    /// From midnight.
    Day,
    /// From Monday.
    Week,
    /// From the first day.
    Month,
}

impl Period {
    /// All periods, the shortest first.
    pub const ALL: [Period; 4] = [Period::Hour, Period::Day, Period::Week, Period::Month];

    /// The name, for example `day`.
    pub const fn name(self) -> &'static str {
        match self {
            Period::Hour => "hour",
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
        }
    }

    /// Returns the start and the end of the period that contains a time, in Unix milliseconds.
    ///
    /// ```
    /// use endstop::journal::Period;
    /// // Friday, 2024-03-01.
    /// let (start, end) = Period::Month.around(1_709_251_200_000);
    /// assert_eq!((start, (end - start) / 86_400_000), (1_709_251_200_000, 31));
    /// assert_eq!(Period::Week.around(1_709_251_200_000).0, 1_708_905_600_000);
    /// ```
    pub fn around(self, time_ms: u64) -> (u64, u64) {
        let (hour, day) = (time_ms / HOUR_MS, time_ms / DAY_MS);
        let days = |from: u64, number: u64| {
            (from.saturating_mul(DAY_MS), from.saturating_add(number).saturating_mul(DAY_MS))
        };
        match self {
            Period::Hour => (hour * HOUR_MS, (hour + 1).saturating_mul(HOUR_MS)),
            Period::Day => days(day, 1),
            // 1970-01-01 was a Thursday.
            Period::Week => {
                let monday = ((day + 3) / 7 * 7).saturating_sub(3);
                days(monday, (day + 3) / 7 * 7 + 4 - monday)
            }
            Period::Month => {
                let first = day + 1 - calendar(day).2;
                // A day of the next month.
                let next = first + 31;
                days(first, next + 1 - calendar(next).2 - first)
            }
        }
    }
}

/// Formats a day since 1970-01-01 as `2026-11-24`.
pub(super) fn date(day: u64) -> String {
    let (year, month, day) = calendar(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the year, the month and the day of the month of a day since 1970-01-01.
fn calendar(day: u64) -> (u64, u64, u64) {
    // Counted in years from March, so that a leap day is the last day of its year.
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}
