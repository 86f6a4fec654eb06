//! Writes one conversation in every dialect that records calls and results, and tests that each
//! reader returns the same turns, calls and results, in whatever order the results come.

mod talk;
mod unusual;
mod written;

use self::talk::{Talk, talk};
use self::written::DIALECTS;
use crate::common::{parsed, read_bytes};
use endstop_trajectory::audit::Session;
use endstop_trajectory::backtest::{Backtest, Candidate};
use endstop_trajectory::read::Options;
use endstop_trajectory::{Origin, Prices, Role, Trajectory, write};
use proptest::prelude::*;
use serde_json::Value;

fn read_in(format: &str, name: &str, text: String) -> Trajectory<'static> {
    let mut options = Options::default();
    // Requested, because a conversation without calls fits several formats.
    options.format = Some(format.to_owned());
    let (mut runs, problems) = read_bytes(name, text.clone(), &options);
    assert_eq!(problems, [], "{format}: {text}");
    assert_eq!(runs.len(), 1, "{format}: {text}");
    runs.remove(0)
}

fn check(talk: &Talk, run: &Trajectory<'_>, format: &str) {
    let prompts: Vec<&str> =
        run.steps.iter().filter(|s| s.role == Role::User).map(|s| &*s.text).collect();
    assert_eq!(prompts, [&talk.prompt], "{format}");
    let turns: Vec<_> = run.turns().collect();
    assert_eq!(turns.len(), talk.turns.len() + 1, "{format}");
    for (nth, (step, (said, calls))) in turns.iter().zip(&talk.turns).enumerate() {
        assert_eq!(&*step.text, said, "{format}");
        assert_eq!(step.calls.len(), calls.len(), "{format}");
        assert_eq!(step.results.len(), calls.len(), "{format}");
        for (at, asked) in calls.iter().enumerate() {
            let call = &step.calls[at];
            assert_eq!(call.id.as_deref(), Some(&*Talk::id(nth, at)), "{format}");
            assert_eq!(&*call.name, asked.name, "{format}");
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert_eq!(arguments, asked.arguments, "{format}");
            let result = step.result_of(at).unwrap();
            assert_eq!(
                (&*result.content, result.is_error),
                (&*asked.told, asked.failed),
                "{format}"
            );
        }
    }
    assert_eq!(&*turns.last().unwrap().text, talk.answer, "{format}");
    assert_eq!(turns.last().unwrap().calls.len(), 0, "{format}");
    assert_eq!(run.notes, [""; 0], "{format}");
    let answer = run.ending.as_ref().and_then(|ending| ending.answer.as_deref());
    assert!(answer.is_none_or(|answer| answer == talk.answer), "{format}: {answer:?}");
}

fn bare(mut run: Trajectory<'static>) -> Trajectory<'static> {
    run.origin = Origin::default();
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn all_dialects_give_one_conversation(talk in talk()) {
        for (format, name, encode) in DIALECTS {
            let run = read_in(format, name, encode(&talk));
            check(&talk, &run, format);
            let mut line = Vec::new();
            write::atif(&run, &mut line).unwrap();
            prop_assert_eq!(bare(parsed("again.json", line).remove(0)), bare(run), "{}", format);
        }
    }

    #[test]
    fn all_dialects_are_judged_alike(talk in talk()) {
        let mut backtest = Backtest::new(&Candidate::reference().unwrap()).unwrap();
        let mut first: Option<(Vec<Option<u32>>, u64, u64)> = None;
        for (format, name, encode) in DIALECTS {
            let run = read_in(format, name, encode(&talk));
            let session = Session::of(&run, &Prices::new());
            let now = (backtest.judge(&run).fired, session.calls, session.failures);
            // Results in another order may be other actions; the calls and failures are the same.
            let want = first.get_or_insert_with(|| now.clone());
            prop_assert_eq!(&now, want, "{}", format);
        }
    }
}
