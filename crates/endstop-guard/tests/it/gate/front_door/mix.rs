//! Random mixes of calls against ceilings.

use super::{SPELLINGS, chat, json_to, limited, request, server, usd};
use crate::gate::agents::call;
use crate::gate::support::{Dice, Guard};
use crate::proxy::support::run_within;
use endstop_guard::run::Settings;
use serde_json::{Value, json};

/// One random request of a run, in which conversations, background responses, other calls and spellings mix. The ids
/// are those of responses so far.
fn random_request(dice: &mut Dice, ids: &[String]) -> Vec<u8> {
    let id = ids.get(dice.roll(ids.len() as u64 + 1) as usize).cloned();
    let text = "word ".repeat(1 + dice.roll(300) as usize);
    let tools = json!([{"type": "function", "name": "bash", "function": {"name": "bash"}}]);
    let cap = [json!(null), json!(50), json!(5_000), json!(-1)][dice.roll(4) as usize].clone();
    match dice.roll(11) {
        0 => json_to(
            "/run/x/v1/chat/completions",
            &json!({"model": "m", "tools": tools, "max_tokens": cap,
            "messages": [{"role": "user", "content": text}]}),
        ),
        1 | 2 => json_to(
            "/run/x/v1/responses",
            &json!({"model": "m", "input": text, "tools": tools,
            "max_output_tokens": cap, "previous_response_id": id}),
        ),
        3 => json_to(
            "/run/x/v1/responses",
            &json!({"model": "m", "input": text, "background": true,
            "tools": tools, "max_output_tokens": cap}),
        ),
        4 | 5 => {
            let id = id.unwrap_or_default();
            request("GET", &format!("/run/x/v1/responses/{id}"), None, b"")
        }
        6 | 7 => {
            let thread = match id {
                Some(id) => json!({"type": "continue", "previous_message_id": id}),
                None => json!({"type": "create"}),
            };
            json_to(
                "/run/x/v1/messages",
                &json!({"model": "m", "max_tokens": cap, "thread": thread, "tools": tools,
                "messages": [{"role": "user", "content": text}]}),
            )
        }
        8 => json_to("/run/x/v1/embeddings", &json!({"model": "m", "input": text})),
        9 => json_to(&format!("/run/x{}", SPELLINGS[dice.roll(14) as usize]), &chat()),
        _ => json_to("/run/x/v1/unknown", &chat()),
    }
}

/// No mix of requests costs more than a strict ceiling; without `--cap-output` only calls in flight do.
#[test]
fn no_mix_of_requests_exceeds_a_ceiling() {
    let runs = std::env::var("ENDSTOP_CHAOS_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = runs.unwrap_or(60_u64);
    run_within(std::time::Duration::from_secs(60 + runs), async {
        let (mut calls, mut refused) = (0_u64, 0_u64);
        for seed in 0..runs {
            let strict = seed % 2 == 0;
            let ceiling = [0.05, 0.3, 2.0][(seed % 3) as usize];
            let (address, server) = server().await;
            server.lock().expect("a lock").honours_caps = true;
            let settings = Settings { cap_output: strict, ..limited(usd(ceiling)) };
            let guard = Guard::start(settings, address).await;
            let mut dice = Dice(seed);
            let mut ids = Vec::new();
            for _ in 0..25 {
                let (status, answer) = call(guard.address, &random_request(&mut dice, &ids)).await;
                calls += 1;
                refused += u64::from(status == 400);
                let answer: Value =
                    serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
                ids.extend(answer["id"].as_str().map(str::to_owned));
            }
            let run = guard.run("x").expect("a run");
            let outcome = run.close(true, "");
            let server = server.lock().expect("a lock");
            let (paid, largest) = (server.usd, server.largest);
            if strict {
                assert!(paid <= ceiling + 1e-9, "seed {seed}: ${paid} of ${ceiling}");
            } else {
                // Background responses are in flight together.
                assert!(paid <= ceiling + 25.0 * largest, "seed {seed}: ${paid} of ${ceiling}");
            }
            // A response that was not asked for before the end is booked at what it may cost.
            let is_exact = (outcome.cost.to_usd() - paid).abs() < 1e-9;
            assert!(is_exact || outcome.cost_unknown, "seed {seed}: {outcome:?} {paid}");
            let most = outcome.cost_upper.map_or(f64::INFINITY, |upper| upper.to_usd());
            assert!(!strict || is_exact || paid <= most + 1e-9, "seed {seed}: {outcome:?} {paid}");
        }
        println!("{runs} runs, {calls} requests, {refused} refused or stopped");
    });
}
