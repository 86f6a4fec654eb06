use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Returns a value for a row that differs from its default.
fn other(row: &LimitRow) -> Value {
    match row.unit {
        Unit::Time => json!("90s"),
        Unit::Switch => json!(true),
        Unit::TokensCounted => json!("output"),
        Unit::Windows => json!("5h=80%"),
        Unit::Rates => json!("$2/h"),
        Unit::Turns | Unit::Usd | Unit::Tokens | Unit::Count => json!(7),
    }
}

#[test]
fn every_name_can_be_set() {
    for row in &TABLE {
        let mut limits = Limits::default();
        limits.set(row.name, &other(row)).unwrap();
        assert_ne!(limits, Limits::default(), "{}", row.name);
        let other_rows = TABLE.iter().filter(|other| other.name != row.name);
        for other in other_rows {
            assert_eq!(other.value(&limits), other.value(&Limits::default()), "{}", row.name);
        }
    }
}

#[test]
fn names_are_those_of_serde() {
    let fields = serde_json::to_value(Limits::default()).unwrap();
    let names: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    let mut sorted = Limits::NAMES.to_vec();
    // Without the feature `preserve_order` of `serde_json` the fields are sorted.
    if names.is_sorted() {
        sorted.sort_unstable();
    }
    assert_eq!(names, sorted);
}

#[test]
fn off_is_accepted_or_explained() {
    for row in &TABLE {
        for value in [json!(null), json!("off")] {
            let mut limits = Limits::default();
            let set = limits.set(row.name, &value).map_err(|error| error.to_string());
            match row.off {
                Off::Allowed => {
                    assert_eq!(set, Ok(()), "{}", row.name);
                    let off = [LimitValue::Off, LimitValue::Count(0), LimitValue::Switch(false)];
                    assert!(off.contains(&row.value(&limits)), "{}", row.name);
                }
                Off::Refused(advice) => {
                    let error = format!("limit `{}`: cannot be off; {advice}", row.name);
                    assert_eq!(set, Err(error));
                    assert_eq!(limits, Limits::default());
                    // The advice must be a value that works.
                    let number = advice.split(' ').nth(1).unwrap();
                    let number: Value = serde_json::from_str(number).unwrap();
                    limits.set(row.name, &number).unwrap();
                }
            }
        }
    }
}

#[test]
fn least_value_error_offers_valid_values() {
    for row in TABLE.iter().filter(|row| row.least > 0) {
        let mut limits = Limits::default();
        let error = limits.set(row.name, &json!(row.least - 1)).unwrap_err().problem;
        match row.off {
            Off::Allowed => {
                assert_eq!(error, "expected at least 1; null or \"off\" disables it");
            }
            Off::Refused(_) => assert_eq!(error, "expected at least 1"),
        }
        limits.set(row.name, &json!(row.least)).unwrap();
    }
}

#[test]
fn none_switches_off_replayable_limits() {
    let (none, default) = (Limits::none(), Limits::default());
    for row in &TABLE {
        match row.needs {
            Needs::Data(_) => {
                let off = [LimitValue::Off, LimitValue::Tokens(TokensCounted::All)];
                assert!(off.contains(&row.value(&none)), "{}", row.name);
            }
            Needs::LiveRun => assert_eq!(row.value(&none), row.value(&default), "{}", row.name),
        }
    }
    let mut off = Limits::default();
    off.switch_off(|_| true);
    let may_apply: Vec<&str> = TABLE
        .iter()
        .filter(|row| row.value(&off) != LimitValue::Off && row.off != Off::Allowed)
        .map(|row| row.name)
        .collect();
    assert_eq!(may_apply, ["max_tokens_counts", "cancel_grace", "tool_concurrency"]);
}

#[test]
fn wrong_value_error_names_expected_value() {
    let mut limits = Limits::default();
    for (key, value, says) in [
        ("max_turns", json!(-1), "whole number"),
        ("max_turns", json!("many"), "whole number"),
        ("max_turns_ms", json!(1), "unknown name"),
        ("max_budget_usd", json!("2"), "US dollars"),
        ("timeout", json!("10 parsecs"), "duration"),
        ("timeout_ms", json!("10m"), "whole number"),
        ("timeout_ms_ms", json!(1), "unknown name"),
        ("cancel_grace", json!(null), "cannot be off"),
        ("tool_concurrency", json!(0), "at least 1"),
        ("max_turnz", json!(1), "did you mean `max_turns`"),
    ] {
        let error = limits.set(key, &value).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(says), "{key}: {error}");
    }
    assert_eq!(limits, Limits::default());
    limits.accept_unknown_finish = true;
    limits.set("accept_unknown_finish", &json!(null)).unwrap();
    assert!(!limits.accept_unknown_finish);
}

#[test]
fn durations_parse_common_units() {
    for (text, ms) in [
        ("500ms", 500),
        (".5s", 500),
        ("90s", 90_000),
        ("1.5m", 90_000),
        ("2h", 7_200_000),
        ("31536000000ms", 31_536_000_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("2m500ms", 120_500),
        ("0031536000000.ms", 31_536_000_000),
    ] {
        assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in [
        "",
        "ten",
        "ms",
        ".ms",
        "1.2.3ms",
        "1e400s",
        "5 weeks",
        "-3s",
        "999999d",
        "31536000001ms",
        "30m1h",
        "1h1h",
        "1h30",
        "1h1.5m",
        "1h30x",
        "1h-3m",
        "365d1ms",
    ] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

/// Generates limits with a random value for each row, set by name.
fn any_limits() -> impl Strategy<Value = Limits> {
    let one = (any::<u32>(), 0_u64..=31_536_000, 0_u32..1_000_000_000, any::<bool>(), 0_u8..4);
    prop::collection::vec(one, COUNT).prop_map(|all| {
        let mut limits = Limits::default();
        for (row, (count, seconds, nanos, switch, kind)) in TABLE.iter().zip(all) {
            let time = Duration::new(seconds, if seconds == 31_536_000 { 0 } else { nanos });
            let value = match (kind, row.unit) {
                (0, _) if row.off == Off::Allowed => json!("off"),
                (_, Unit::Time) => LimitValue::Time(time).spelled(),
                (_, Unit::Switch) => json!(switch),
                (_, Unit::Usd) => json!(f64::from(count) / 7.0),
                (_, Unit::TokensCounted) => {
                    json!(TokensCounted::ALL[usize::from(kind) % 3].as_str())
                }
                (_, Unit::Windows) => json!(format!("{}m={}%", 1 + count % 500_000, seconds % 101)),
                (_, Unit::Rates) => {
                    json!(format!("{} tokens/m,${}/h", 1 + u64::from(count), 1 + seconds % 101))
                }
                (_, Unit::Tokens) => json!(u64::from(count) << (kind * 8)),
                (_, Unit::Turns | Unit::Count) => json!(u64::from(count).max(row.least)),
            };
            limits.set(row.name, &value).unwrap();
        }
        limits
    })
}

proptest! {
    #[test]
    fn set_of_get_is_identity(limits in any_limits()) {
        let mut again = Limits::none();
        for name in Limits::NAMES {
            let mut same = limits.clone();
            let value = limits.get(name).unwrap();
            same.set(name, &value).unwrap();
            prop_assert_eq!(&same, &limits, "{} = {}", name, &value);
            again.set(name, &value).unwrap();
        }
        prop_assert_eq!(again, limits);
    }

    #[test]
    fn spelled_duration_is_exact(seconds in 0_u64..31_536_000, nanos in 0_u32..1_000_000_000) {
        let time = Duration::new(seconds, nanos);
        let spelled = LimitValue::Time(time).spelled();
        prop_assert_eq!(parse_duration(spelled.as_str().unwrap()), Some(time));
    }

    #[test]
    fn looser_is_not_symmetric(own in any_limits(), theirs in any_limits()) {
        for row in &TABLE {
            prop_assert!(!row.is_looser(&own, &own));
            let both = row.is_looser(&own, &theirs) && row.is_looser(&theirs, &own);
            let (one, other) = (row.value(&own), row.value(&theirs));
            // Each permits what the other does not, for example of another window.
            let apart = one.partial_cmp(&other).is_none();
            prop_assert_eq!(both, apart || row.tighter == Tighter::LowerIfSet
                && one != other
                && [one, other].contains(&LimitValue::Off));
        }
    }
}
