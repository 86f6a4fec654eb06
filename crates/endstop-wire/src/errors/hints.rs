//! Retry hints: reads the time to wait from response headers or from the words of an error.

use crate::headers::Headers;

/// Returns the requested delay before a retry, in milliseconds. A date is compared with the
/// response's own `date` header, because this crate has no clock. `words` are the error's, in lower
/// case.
pub fn retry_after_ms(headers: &Headers, words: &str) -> Option<u64> {
    // `retry-after-ms` comes first because it is more precise than whole seconds.
    if let Some(ms) = headers.get("retry-after-ms").and_then(|v| v.trim().parse::<f64>().ok()) {
        return millis(ms);
    }
    if let Some(value) = headers.get("retry-after") {
        let value = value.trim();
        if let Ok(seconds) = value.parse::<f64>() {
            return millis(seconds * 1000.0);
        }
        if let Some(at) = http_date(value) {
            // Without a `date` header the delay is unknown; a guess could be wrong by hours.
            let now = now(headers)?;
            return millis((at.saturating_sub(now).max(0) as f64) * 1000.0);
        }
    }
    in_words(words)
}

/// Returns the value of `x-should-retry`, if the provider sends it.
pub fn should_retry(headers: &Headers) -> Option<bool> {
    match headers.get("x-should-retry")?.trim() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns the time until every exhausted allowance is reset, in milliseconds, from rate-limit
/// headers: `x-ratelimit-reset-tokens: 6m0s` (OpenAI, Groq and others), seconds (Cerebras), a
/// moment in milliseconds (OpenRouter), or `anthropic-ratelimit-tokens-reset` with a date. An
/// allowance that is not used up, or that does not state what is left, is ignored. Moments are
/// compared with the response's own `date`.
pub(super) fn allowance_ms(headers: &Headers) -> Option<u64> {
    let now = now(headers);
    let spent = |name: &str| headers.get(name).is_some_and(|left| left.trim() == "0");
    let resets = headers.iter().filter_map(|(name, value)| {
        // The matching `remaining` header has the same name with `reset` replaced.
        let name = name.to_ascii_lowercase();
        let limited = name.contains("ratelimit-") && name.contains("reset");
        if !limited || !spent(&name.replacen("reset", "remaining", 1)) {
            return None;
        }
        let value = value.trim();
        if let Ok(number) = value.parse::<f64>() {
            return match number {
                // No allowance lasts this many seconds, so the number is a moment, in milliseconds
                // or in seconds.
                n if n >= 1e11 => millis(n - now? as f64 * 1000.0),
                n if n >= 1e8 => millis((n - now? as f64) * 1000.0),
                n => millis(n * 1000.0),
            };
        }
        match rfc3339(value) {
            Some(at) => millis((at.saturating_sub(now?).max(0) as f64) * 1000.0),
            None => duration(value),
        }
    });
    // All exhausted allowances must be back before the request can succeed, so the longest wait
    // counts.
    resets.max()
}

/// Parses `2026-03-01T12:00:30Z` into seconds since 1970. A fraction is dropped, and other time
/// zones than UTC are not accepted.
fn rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let time = time.strip_suffix('Z').or_else(|| time.strip_suffix("+00:00"))?;
    let numbers = |text: &str, by: char| -> Option<[i64; 3]> {
        let mut parts = text.split(by).map(|part| part.parse().ok());
        let all = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(all)
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    Some(days_since_1970(year, month, day)? * 86_400 + seconds_of_day(hour, minute, second)?)
}

/// Returns the seconds since midnight. A minute may have 61 seconds, because of leap seconds.
fn seconds_of_day(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_time =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    is_time.then(|| hour * 3_600 + minute * 60 + second)
}

/// Returns the number of days from 1970-01-01 to a civil date.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=31).contains(&day) || !(1..=12).contains(&month) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Years are counted from March, so that the leap day is the last day of a year.
    let y = if month <= 2 { year - 1 } else { year };
    let m = (month + 9) % 12;
    Some(365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719_468)
}

/// Returns the time of the response, in seconds since 1970.
pub(super) fn now(headers: &Headers) -> Option<i64> {
    headers.get("date").and_then(http_date)
}

pub(super) fn millis(ms: f64) -> Option<u64> {
    // Round up, because a retry that is a fraction too early is refused again.
    (ms.is_finite() && ms >= 0.0).then_some(ms.ceil() as u64)
}

/// Parses the delay in `try again in 1.3s`, `retry in 350ms`, `retry after 20 seconds`,
/// `"retryDelay":"24s"` or `will reset after 5h12m3s`.
fn in_words(words: &str) -> Option<u64> {
    const LEADS: [&str; 8] = [
        "try again in ",
        "retry in ",
        "retry after ",
        "retrydelay\":\"",
        "wait ",
        "try again after ",
        "reset after ",
        "reset in ",
    ];
    LEADS.iter().find_map(|lead| {
        let at = words.find(lead)? + lead.len();
        duration(&words[at..])
    })
}

/// Parses `1.3s`, `350ms`, `6m0s`, `1h2m`, `20 seconds` or `2 minutes` into milliseconds.
fn duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0.0;
    let mut any = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        // A number at the end of a sentence has the full stop attached.
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let after = rest[digits..].trim_start_matches(' ');
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..unit_len] {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ => break,
        };
        total += number * unit;
        any = true;
        rest = &after[unit_len..];
    }
    if any { millis(total) } else { None }
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT` into seconds since 1970.
fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let day: i64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|m| *m == name)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = || words.next()?.parse::<i64>().ok();
    let (hour, minute, second) = (clock()?, clock()?, clock()?);
    Some(days_since_1970(year, month, day)? * 86_400 + seconds_of_day(hour, minute, second)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_words_yield_retry_delay() {
        let h = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Headers>();
        for (headers, words, want) in [
            (h(&[("retry-after", "2")]), "", Some(2000)),
            (h(&[("Retry-After", "0.5")]), "", Some(500)),
            (h(&[("retry-after-ms", "350"), ("retry-after", "2")]), "", Some(350)),
            (
                h(&[
                    ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
                    ("date", "Sun, 06 Nov 1994 08:49:07 GMT"),
                ]),
                "",
                Some(30_000),
            ),
            (h(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), "", None),
            (h(&[("retry-after", "-1")]), "", None),
            (h(&[]), "please try again in 1.3s.", Some(1300)),
            (h(&[]), "please try again in 350ms. visit", Some(350)),
            (h(&[]), "try again in 2m", Some(120_000)),
            (h(&[]), "try again in 6m0s", Some(360_000)),
            (h(&[]), "please retry after 20 seconds.", Some(20_000)),
            (h(&[]), r#"{"retrydelay":"24s"}"#, Some(24_000)),
            (h(&[]), "try again in a while", None),
        ] {
            assert_eq!(retry_after_ms(&headers, words), want, "{headers:?} {words}");
        }
        for (pairs, want) in [
            (
                &[
                    ("x-ratelimit-reset-requests", "1s"),
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                    ("x-ratelimit-remaining-tokens", "12"),
                ][..],
                Some(1000),
            ),
            (&[("x-ratelimit-reset-requests", "1s")], None),
            (
                &[
                    ("x-ratelimit-reset-tokens-minute", "12.5"),
                    ("x-ratelimit-remaining-tokens-minute", "0"),
                ],
                Some(12_500),
            ),
            (
                &[
                    ("X-RateLimit-Reset", "784111777500"),
                    ("X-RateLimit-Remaining", "0"),
                    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ],
                Some(500),
            ),
            (&[("X-RateLimit-Reset", "784111777500"), ("X-RateLimit-Remaining", "0")], None),
            (
                &[
                    ("anthropic-ratelimit-tokens-reset", "1994-11-06T08:50:07Z"),
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ],
                Some(30_000),
            ),
        ] {
            assert_eq!(allowance_ms(&h(pairs)), want, "{pairs:?}");
        }
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    }

    #[test]
    fn impossible_time_is_rejected() {
        for time in ["24:00:00", "9223372036854775807:0:0", "0:60:0", "0:0:61", "-1:0:0"] {
            assert_eq!(http_date(&format!("Sun, 06 Nov 1994 {time} GMT")), None, "{time}");
            assert_eq!(rfc3339(&format!("1994-11-06T{time}Z")), None, "{time}");
        }
    }
}
