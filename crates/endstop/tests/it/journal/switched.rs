//! Journalled runs that switch to a fallback: the replay, and a resume after each record.

use super::resumed::Dies;
use super::{Place, agent, echo, price};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, Outcome, Resume, StartError, Termination};
use serde_json::json;

/// One turn of the agent's own model, which is then gone.
fn own() -> Vec<Turn> {
    vec![Turn::call("echo", &json!({"text": "a"})).usage(100, 10), Turn::error(404, "gone")]
}

/// Two turns of the fallback.
fn rest() -> Vec<Turn> {
    let call = Turn::call("echo", &json!({"text": "b"})).reasoning("hm").usage(200, 10);
    vec![call, Turn::text("Done.").usage(300, 10)]
}

fn fallback(turns: Vec<Turn>) -> ScriptedModel {
    ScriptedModel::new(turns).price(price())
}

fn calls(outcome: &Outcome) -> Vec<(u32, u32)> {
    outcome.models.iter().map(|one| (one.fallback, one.calls)).collect()
}

#[tokio::test]
async fn replay_of_switch_equals_live_run() {
    let place = Place::new();
    let journal = place.journal();
    let agent = agent(own(), &journal).fallback(fallback(rest())).tool(echo()).build().unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{:?}", outcome.decided_by);
    assert_eq!(calls(&outcome), [(0, 2), (1, 2)]);
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    let again = run.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(again.outcome().unwrap()).unwrap(),
        run.outcome.as_ref().unwrap().to_string()
    );
    let switch = json!({"effect": "switch_model", "fallback": 1});
    assert_eq!(run.effects.iter().flatten().filter(|effect| **effect == switch).count(), 1);
    let kinds: Vec<&str> =
        run.events_again().unwrap().iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "model_switched").count(), 1);
}

#[tokio::test]
async fn resume_continues_with_model_in_use() {
    let mut resumed = [0, 0];
    for after in 1..8 {
        let place = Place::new();
        let id = {
            let inner = place.journal();
            let dies = Dies { inner: inner.clone(), after };
            let agent =
                agent(own(), &inner).journal(dies).fallback(fallback(rest())).tool(echo()).build();
            let outcome = agent.unwrap().run("go").unwrap().outcome().await;
            outcome.run_id.unwrap()
        };
        // The process and its lock are gone.
        let journal = place.journal();
        let before = journal.load(&id).unwrap();
        assert!(before.outcome.is_none(), "after {after}");
        let events = |name: &str| before.events.iter().filter(|e| e.kind.name() == name).count();
        let (turns, failed) = (events("turn_ended"), events("turn_failed"));
        let (own, rest) = if failed == 0 {
            (own().split_off(turns), rest())
        } else {
            (vec![Turn::error(500, "it is not called")], rest().split_off(turns - 1))
        };
        resumed[failed] += 1;
        let agent = agent(own, &journal).fallback(fallback(rest)).tool(echo()).build().unwrap();
        let how = Resume::new(&id);
        let outcome = agent.resume(how).unwrap().outcome().await;
        assert_eq!(
            outcome.termination,
            Termination::Stop,
            "after {after}: {:?}",
            outcome.decided_by
        );
        assert_eq!((outcome.turns, outcome.models.len()), (3, 2), "after {after}");
        let run = journal.load(&id).unwrap();
        let again = run.replay(None).unwrap();
        assert_eq!(
            serde_json::to_string(again.outcome().unwrap()).unwrap(),
            run.outcome.unwrap().to_string()
        );
    }
    assert!(resumed[0] > 1 && resumed[1] > 1, "{resumed:?} before and after the switch");
}

#[tokio::test]
async fn ended_run_begins_with_own_model_again() {
    let place = Place::new();
    let journal = place.journal();
    let gone = || vec![Turn::error(404, "gone")];
    let broken = agent(own(), &journal).fallback(fallback(gone())).tool(echo()).build().unwrap();
    let outcome = broken.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorProviderRejected);
    assert_eq!(calls(&outcome), [(0, 2), (1, 1)]);
    let id = outcome.run_id.unwrap();
    let works = |turns| agent(turns, &journal).fallback(fallback(gone())).tool(echo()).build();
    let agent = works(vec![Turn::text("Done.")]).unwrap();
    let outcome = agent.resume(Resume::new(&id)).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{:?}", outcome.decided_by);
    assert_eq!(calls(&outcome), [(0, 3), (1, 1)]);
}

#[tokio::test]
async fn other_fallbacks_are_a_change() {
    let place = Place::new();
    let journal = place.journal();
    let agent = agent(own(), &journal).tool(echo()).build().unwrap();
    let id = agent.run("go").unwrap().outcome().await.run_id.unwrap();
    let model = ScriptedModel::new([Turn::error(404, "gone")]).price(price());
    let agent: Agent = Agent::builder(model)
        .journal(journal)
        .fallback(fallback(rest().split_off(1)))
        .tool(echo())
        .build()
        .unwrap();
    let refused = agent.resume(Resume::new(&id)).unwrap_err();
    let StartError::Changed(changes) = &refused else { panic!("{refused}") };
    assert!(changes.iter().any(|change| change.what == "fallback"), "{refused}");
    let outcome = agent.resume(Resume::new(&id).accept_changes()).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{:?}", outcome.decided_by);
}
