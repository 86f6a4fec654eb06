//! The worst case of a call bounds its cost, however its prompt was cached.

use endstop_core::{CacheUse, NanoUsd, Price, Usage};
use proptest::prelude::*;

fn rate() -> impl Strategy<Value = NanoUsd> {
    (0..100_000_000_000u64).prop_map(NanoUsd)
}

fn price() -> impl Strategy<Value = Price> {
    let optional = || prop::option::of(rate());
    (rate(), rate(), optional(), optional(), optional()).prop_map(
        |(input, output, cached_input, cache_write, cache_write_1h)| Price {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_1h,
            ..Price::default()
        },
    )
}

/// Shares of a prompt: plain, read from a cache, written to one, and written for an hour.
fn usage(apart: bool, [plain, read, written, hour]: [u64; 4], output: u64) -> Usage {
    let prompt = plain + read + written + hour;
    Usage {
        input_tokens: Some(if apart { plain } else { prompt }),
        output_tokens: Some(output),
        cached_input_tokens: Some(read),
        cache_write_tokens: Some(written + hour),
        cache_write_1h_tokens: Some(hour),
        cache_apart: apart,
        ..Usage::default()
    }
}

proptest! {
    #[test]
    fn worst_case_bounds_cached_calls(
        price in price(),
        shares in prop::array::uniform4(0..2_000_000u64),
        output in 0..200_000u64,
        more in 0..1_000u64,
        apart in any::<bool>(),
        asks_for_hour in any::<bool>(),
    ) {
        // A run that does not ask for an hour gets no such entries.
        let [plain, read, written, hour] = shares;
        let (price, shares) = if asks_for_hour {
            (price.with_hour_writes(), shares)
        } else {
            (price, [plain, read, written + hour, 0])
        };
        let usage = usage(apart, shares, output);
        let prompt = shares.iter().sum::<u64>();
        prop_assert_eq!(usage.prompt_tokens(), prompt);
        let worst = price.worst(prompt + more, output);
        prop_assert!(price.cost(&usage) <= worst);
        // The output that a ceiling allows keeps the call below it.
        if let Some(most) = price.affordable(prompt, worst) {
            let longest = Usage { output_tokens: Some(most.min(1 << 40)), ..usage };
            prop_assert!(price.cost(&longest) <= worst);
        }
    }
}

#[test]
fn hour_writes_cost_twice_the_input() {
    let price = Price {
        input: NanoUsd::from_usd(3.0),
        cache_write: Some(NanoUsd::from_usd(3.75)),
        ..Price::default()
    };
    assert_eq!(price.hour_write(), NanoUsd::from_usd(6.0));
    assert_eq!(price.worst(1_000_000, 0), NanoUsd::from_usd(3.75));
    assert_eq!(price.with_hour_writes().worst(1_000_000, 0), NanoUsd::from_usd(6.0));
    let shares = usage(true, [0, 0, 500_000, 500_000], 0);
    assert_eq!(price.cost(&shares), NanoUsd::from_usd(4.875));
}

#[test]
fn any_reported_number_of_tokens_has_a_price() {
    let most = NanoUsd(u64::MAX);
    let all = Some(u64::MAX);
    let usage = Usage {
        input_tokens: all,
        output_tokens: all,
        cached_input_tokens: all,
        cache_write_tokens: all,
        cache_write_1h_tokens: all,
        cache_apart: true,
        ..Usage::default()
    };
    for price in [
        Price { input: most, output: most, ..Price::default() },
        Price { cached_input: Some(most), cache_write: Some(most), ..Price::default() },
    ] {
        assert_eq!(price.cost(&usage), most);
        let saved = CacheUse::of(&usage, Some(price)).unwrap().saved.unwrap();
        assert!(saved.0 <= 0 || price.cached_input.is_none(), "{saved}");
    }
}
