//! Conversations are stored once, however many runs continue them.

use super::{Place, agent, echo};
use endstop::journal::{PruneSpec, SqliteJournal};
use endstop::testkit::Turn;
use endstop::{Limits, Message, MessageId, Outcome, Role, Session};
use serde_json::json;

/// Returns the size of the file, with its log copied to it.
fn size(place: &Place) -> u64 {
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    std::fs::metadata(place.file()).unwrap().len()
}

fn number(place: &Place, sql: &str) -> i64 {
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns text that differs for each number.
fn words(nth: usize, bytes: usize) -> String {
    format!("Message {nth} of the conversation. ").chars().cycle().take(bytes).collect()
}

async fn ask(agent: &Session, question: String) -> Outcome {
    let outcome = agent.run(question).unwrap().outcome().await;
    assert!(outcome.is_success(), "{outcome:?}");
    outcome
}

/// Returns a loop whose model answers each question with this many bytes.
fn talk(journal: &SqliteJournal, answers: usize, bytes: usize) -> Session {
    let answers = (0..answers).map(move |nth| Turn::text(words(2 * nth + 1, bytes)));
    let limits = Limits { max_turns: None, ..Limits::default() };
    agent(answers, journal).limits(limits).system(words(0, 3_000)).build().unwrap().session()
}

#[tokio::test]
async fn long_chat_takes_linear_space() {
    let place = Place::new();
    let journal = place.journal();
    let talk = talk(&journal, 80, 2_000);
    let mut sizes = Vec::new();
    let mut conversation = 0;
    for nth in 0..80 {
        let outcome = ask(&talk, words(2 * nth, 2_000)).await;
        conversation = outcome.messages.iter().map(Message::byte_len).sum();
        if (nth + 1) % 40 == 0 {
            sizes.push(size(&place));
        }
    }
    assert!(sizes[1] < 6 * conversation, "{sizes:?}, conversation {conversation}");
    // The second half costs what the first did.
    assert!(sizes[1] < 2 * sizes[0] + 100_000, "{sizes:?}");
    assert_eq!(number(&place, "SELECT count(*) FROM conversations"), 160);
}

#[tokio::test]
async fn each_chat_run_loads_completely() {
    let place = Place::new();
    let journal = place.journal();
    let turns = (0..6).flat_map(|nth| {
        [Turn::call("echo", &json!({"text": words(nth, 400)})), Turn::text(words(nth, 300))]
    });
    let talk = agent(turns, &journal).tool(echo()).build().unwrap().session();
    let mut outcomes = Vec::new();
    for nth in 0..6 {
        outcomes.push(ask(&talk, format!("question {nth}")).await);
    }
    // Read as another process would, without the cache of stored conversations.
    let other = SqliteJournal::read(place.file()).unwrap();
    for (nth, outcome) in outcomes.iter().enumerate() {
        let run = other.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.damage, None);
        assert_eq!(run.task(), format!("question {nth}"));
        assert_eq!(run.header.spec.messages.len(), 4 * nth + 1);
        assert_eq!(run.outcome.as_ref().unwrap(), &serde_json::to_value(outcome).unwrap());
        let replay = run.replay(None).unwrap();
        assert_eq!(replay.outcome().unwrap(), outcome);
    }
}

#[tokio::test]
async fn two_processes_share_one_conversation() {
    let place = Place::new();
    let (one, other) = (place.journal(), place.journal());
    let first = ask(&talk(&one, 3, 500), words(7, 500)).await;
    let second = ask(&talk(&other, 3, 500), words(7, 500)).await;
    assert_eq!(number(&place, "SELECT count(*) FROM conversations"), 2);
    for outcome in [first, second] {
        let run = one.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
    }
}

#[tokio::test]
async fn forked_conversations_keep_their_own_endings() {
    let place = Place::new();
    let journal = place.journal();
    let base: Vec<Message> = (0..4)
        .map(|nth| {
            let role = if nth % 2 == 0 { Role::User } else { Role::Assistant };
            Message::text(MessageId(nth), role, words(nth as usize, 600))
        })
        .collect();
    let mut outcomes = Vec::new();
    for fork in 0..3 {
        let answers = [Turn::text(format!("answer {fork}"))];
        let fork = agent(answers, &journal).build().unwrap();
        let fork = fork.session_from(base.clone()).unwrap();
        outcomes.push(ask(&fork, "and then?".to_owned()).await);
    }
    // Four messages, the question, and three answers.
    assert_eq!(number(&place, "SELECT count(*) FROM conversations"), 8);
    for outcome in outcomes {
        let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
    }
}

#[tokio::test]
async fn changed_first_message_shares_other_texts() {
    let place = Place::new();
    let journal = place.journal();
    for nth in 0..20 {
        let mut messages = vec![Message::text(MessageId(0), Role::User, format!("today is {nth}"))];
        let long = |id| Message::text(MessageId(id), Role::User, words(id as usize, 5_000));
        messages.extend((1..9).map(long));
        let agent = agent([Turn::text("yes")], &journal).build().unwrap();
        ask(&agent.session_from(messages).unwrap(), "is it so?".to_owned()).await;
    }
    assert!(size(&place) < 40_000 * 5, "{}", size(&place));
}

#[tokio::test]
async fn conversation_removed_elsewhere_is_stored_again() {
    let place = Place::new();
    let (journal, other) = (place.journal(), place.journal());
    let talk = talk(&journal, 4, 500);
    ask(&talk, words(1, 500)).await;
    ask(&talk, words(2, 500)).await;
    let removed = other.prune(&PruneSpec { keep: Some(0), ..PruneSpec::default() }).unwrap();
    assert_eq!(removed.removed.len(), 2);
    assert_eq!(number(&place, "SELECT count(*) FROM conversations"), 0);
    let outcome = ask(&talk, words(3, 500)).await;
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.header.spec.messages.len(), 5);
    assert_eq!(run.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
}

#[tokio::test]
async fn unreadable_message_is_named_as_damage() {
    let place = Place::new();
    let journal = place.journal();
    let talk = talk(&journal, 2, 100);
    let first = ask(&talk, words(1, 100)).await;
    let second = ask(&talk, words(2, 100)).await;
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    for (harm, named) in [
        (
            "UPDATE texts SET text = '{' WHERE number = (SELECT text FROM conversations WHERE number = 2)",
            "EOF",
        ),
        ("UPDATE conversations SET before = 9 WHERE number = 2", "out of place"),
        ("DELETE FROM conversations WHERE number = 2", "is missing"),
    ] {
        plain
            .execute_batch("DROP TRIGGER IF EXISTS what_was_said_stands; DROP TRIGGER IF EXISTS a_conversation_stands;")
            .unwrap();
        plain.execute(harm, []).unwrap();
        let run = journal.load(second.run_id.as_deref().unwrap()).unwrap();
        let damage = run.damage.unwrap();
        assert!(damage.contains("conversation cannot be read"), "{damage}");
        assert!(damage.contains(named), "{damage}");
        assert!(run.events.is_empty(), "they mean nothing without what was before");
        let run = journal.load(first.run_id.as_deref().unwrap()).unwrap();
        assert!(run.damage.unwrap().contains("its outcome cannot be read"));
        assert!(!run.events.is_empty(), "it began before the damage");
    }
}
