//! The price of calls that name two models, and of calls that are no turns.

use super::{asked, guarded, json_to, limited, request, usd};
use crate::gate::agents::call;
use crate::gate::support::price;
use crate::proxy::support::run;
use endstop_core::{Limits, Termination};
use endstop_guard::run::Settings;
use serde_json::{Value, json};

/// The path and the body of a call for vectors can name two models, as those of an answer can.
#[test]
fn deployment_of_embeddings_may_be_dearer() {
    run(async {
        // The catalogue has no prices of models for vectors.
        const SMALL: &str = "gpt-4.1-nano";
        const LARGE: &str = "o1-pro";
        let settings = Settings { price: None, ..limited(usd(1.0)) };
        let strict = Settings { cap_output: true, ..settings.clone() };
        let azure = |name: &str| format!("/run/a/openai/deployments/{name}/embeddings");
        // Two models with the same bill of tokens.
        let ask = |model: &str| json!({"model": model, "input": "text ".repeat(400)});
        let cost = async |path: String, body: &Value| {
            let (guard, _) = guarded(settings.clone()).await;
            let (status, answer) = call(guard.address, &json_to(&path, body)).await;
            assert_eq!(status, 200, "{path} {answer:?}");
            guard.run("a").expect("a run").spent().cost
        };
        let plain = "/run/a/v1/embeddings".to_owned();
        let (small, large) =
            (cost(plain.clone(), &ask(SMALL)).await, cost(plain.clone(), &ask(LARGE)).await);
        assert!(small.0 > 0 && large.0 > 2 * small.0, "{small:?} {large:?}");
        for (deployment, body, expected) in [
            (LARGE, ask(SMALL), large),
            (SMALL, ask(LARGE), large),
            ("O1-%50ro", ask(SMALL), large),
            (SMALL, ask(SMALL), small),
            ("prod", ask(SMALL), small),
        ] {
            let cost = cost(azure(deployment), &body).await;
            // The names of the models differ by a token.
            assert!(cost.0.abs_diff(expected.0) < expected.0 / 100, "{deployment} {cost:?}");
        }
        // A body without a model is that of the deployment, and its tokens are a few more or less.
        let unnamed = cost(azure(LARGE), &json!({"input": "text ".repeat(400)})).await;
        assert!(unnamed.0 > 2 * small.0, "{unnamed:?}");
        let (guard, server) = guarded(strict).await;
        for (path, body) in [(azure("prod"), ask(SMALL)), (azure(SMALL), ask("prod"))] {
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            let answer = answer.expect("a body");
            assert!(status == 400 && answer.contains("prod`"), "{path} {answer}");
        }
        // Servers may read either of two models.
        let (guard, _) = guarded(settings).await;
        let twice = format!(r#"{{"model":"{LARGE}","input":"x","model":"{SMALL}"}}"#);
        let request = request("POST", &plain, Some("application/json"), twice.as_bytes());
        let (status, answer) = call(guard.address, &request).await;
        assert!(status == 400 && answer.expect("a body").contains("more than once"), "{status}");
        assert_eq!(asked(&server), 0);
    });
}

/// A path can name another model than the body: a deployment of Azure. The higher price is reserved, and under a strict
/// ceiling both must be known.
#[test]
fn deployment_in_the_path_may_be_dearer() {
    run(async {
        let strict = Settings { price: None, cap_output: true, ..limited(usd(1.0)) };
        let ask =
            |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
        let azure = |name: &str| format!("/run/a/openai/deployments/{name}/chat/completions");
        for (path, body, dear) in [
            (azure("o1-pro"), ask("gpt-4.1-nano"), true),
            (azure("O1-Pro"), ask("gpt-4.1-nano"), true),
            (azure("%6f1-pro"), ask("gpt-4.1-nano"), true),
            (azure("gpt-4.1-nano"), ask("o1-pro"), true),
            (azure("o1-pro"), json!({"messages": []}), true),
            (azure("gpt-4.1-nano"), ask("gpt-4.1-nano"), false),
            (azure("gpt-4.1-nano"), ask("GPT-4.1-nano"), false),
            ("/run/a/v1/chat/completions".to_owned(), ask("gpt-4.1-nano"), false),
        ] {
            let (guard, server) = guarded(strict.clone()).await;
            server.lock().expect("a lock").honours_caps = true;
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            assert_eq!(status, 200, "{path} {answer:?}");
            let sent = server.lock().expect("a lock").asked[0].2.clone();
            let caps = ["max_tokens", "max_completion_tokens"];
            let cap = caps.iter().find_map(|name| sent[*name].as_u64()).expect("a cap");
            // $1 buys 1,667 tokens of o1-pro, and 2.5 million of gpt-4.1-nano.
            assert_eq!(cap < 1_667, dear, "{path} {body} {cap}");
        }
        let (guard, server) = guarded(strict.clone()).await;
        for (path, body) in [
            (azure("prod"), ask("gpt-4.1-nano")),
            (azure("gpt-4.1-nano"), ask("prod")),
            (azure("prod"), json!({"messages": []})),
            (
                "/run/a/v1beta/models/gemini-2.5-flash:generateContent".to_owned(),
                json!({"model": "models/prod", "contents": []}),
            ),
        ] {
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            let answer = answer.expect("a body");
            assert!(status == 400 && answer.contains("prod`"), "{path} {answer}");
        }
        assert_eq!(asked(&server), 0);
        // A price for all models, or no strict ceiling: the body's model counts if the other one is not known.
        for settings in [
            Settings { price: Some(price()), ..strict.clone() },
            Settings { cap_output: false, ..strict },
        ] {
            let (guard, _) = guarded(settings).await;
            let body = ask("gpt-4.1-nano");
            assert_eq!(call(guard.address, &json_to(&azure("prod"), &body)).await.0, 200);
        }
    });
}

#[test]
fn embeddings_are_priced_and_are_no_turns() {
    run(async {
        let body = json!({"model": "e", "input": "text ".repeat(400)});
        let settings = limited(Limits { max_turns: Some(1), ..usd(0.05) });
        let (guard, server) = guarded(settings).await;
        let mut paid = 0;
        for _ in 0..20 {
            paid += usize::from(
                call(guard.address, &json_to("/run/e/v1/embeddings", &body)).await.0 == 200,
            );
        }
        let run = guard.run("e").expect("a run");
        let bill = server.lock().expect("a lock").usd;
        assert!(paid > 1 && bill <= 0.05, "{paid} {bill}");
        assert_eq!(run.outcome().expect("an end").termination, Termination::ErrorMaxBudgetUsd);
        assert!((run.spent().cost.to_usd() - bill).abs() < 1e-9);
        assert_eq!(run.spent().turns, 0);
        // Without a price they are refused under a ceiling of money only.
        for (limits, expected) in
            [(usd(5.0), 400), (Limits { max_turns: Some(1), ..Limits::none() }, 200)]
        {
            let (guard, _) = guarded(Settings { price: None, ..limited(limits) }).await;
            for (path, body) in [
                ("/v1/embeddings", json!({"model": "e", "input": "x"})),
                ("/v1/images/generations", json!({"model": "i", "prompt": "x"})),
            ] {
                let (status, answer) =
                    call(guard.address, &json_to(&format!("/run/e{path}"), &body)).await;
                let answer = answer.expect("a body");
                assert_eq!(status, expected, "{path} {answer}");
                assert!(status == 200 || answer.contains("`price` in its profile"), "{answer}");
            }
        }
        // The size of an image is not known before.
        let strict = Settings { cap_output: true, ..limited(usd(5.0)) };
        let (guard, server) = guarded(strict).await;
        let image = json!({"model": "i", "prompt": "x"});
        assert_eq!(
            call(guard.address, &json_to("/run/e/v1/images/generations", &image)).await.0,
            400
        );
        assert_eq!(asked(&server), 0);
        let (guard, server) = guarded(limited(usd(5.0))).await;
        assert_eq!(
            call(guard.address, &json_to("/run/e/v1/images/generations", &image)).await.0,
            200
        );
        let bill = server.lock().expect("a lock").usd;
        assert!((guard.run("e").expect("a run").spent().cost.to_usd() - bill).abs() < 1e-9);
    });
}
