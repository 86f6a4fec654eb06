//! Runs, threads and turns: the order of their signs, retries, restarts, and forged ids.

use super::client::{Table, salt, thread, turn};
use endstop_guard::exchange::{
    Attempt, ClientFacts, History, Kind, Request, RunSource, Salt, Threads, route,
};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const KEY: (&str, &str) = ("authorization", "Bearer sk-secret-000");

/// A chat request with a tool and these messages.
fn chat(messages: &Value) -> Value {
    json!({"model": "m", "tools": [{"function": {"name": "bash"}}], "messages": messages})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn called(id: &str) -> Value {
    let function = json!({"name": "bash", "arguments": "{}"});
    json!({"role": "assistant", "tool_calls": [{"id": id, "function": function}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

#[test]
fn run_follows_order_of_signs() {
    let body = json!({
        "model": "m", "tools": [{"name": "Bash"}], "messages": [user("Fix the test.")],
        "metadata": {"user_id": r#"{"device_id":"d","session_id":"from-body"}"#}
    });
    let session = ("x-claude-code-session-id", "from-header");
    let named = ("x-endstop-run", "from-run-header");
    let run = |target: &str, headers: &[(&str, &str)], body: &Value| {
        let seat = Table::new().place(target, headers, body).seat;
        (seat.run.source(), seat.run.id().to_owned())
    };
    let all = [named, session, KEY];
    let prefix = (RunSource::Prefix, "from-prefix".to_owned());
    assert_eq!(run("/run/from-prefix/v1/messages", &all, &body), prefix);
    let header = (RunSource::Header, "from-run-header".to_owned());
    assert_eq!(run("/v1/messages", &all, &body), header);
    let by_session = |id: &str| (RunSource::Session, id.to_owned());
    assert_eq!(run("/v1/messages", &all[1..], &body), by_session("from-header"));
    assert_eq!(run("/v1/messages", &all[2..], &body), by_session("from-body"));
    let mut older = body.clone();
    older["metadata"]["user_id"] = json!("user_abc_account__session_1234-5678");
    assert_eq!(run("/v1/messages", &[KEY], &older), by_session("1234-5678"));
    let mut plain = body;
    plain["metadata"] = Value::Null;
    let (source, id) = run("/v1/messages", &[KEY], &plain);
    assert_eq!((source, id.len()), (RunSource::Key, 32));
    let other = run("/v1/messages", &[("x-api-key", "another")], &plain);
    assert_ne!(other.1, id);
}

#[test]
fn key_is_in_no_output() {
    let facts = |name: &str, value: &str, target: &str| {
        ClientFacts::read([(name, value.as_bytes())], target, &salt())
    };
    let bearer = facts("Authorization", "Bearer sk-secret-000", "/");
    let header = facts("x-api-key", "sk-secret-000", "/");
    let query =
        facts("accept", "*/*", "/v1beta/models/g:generateContent?alt=sse&key=sk-secret-000");
    assert!(bearer.key.is_some() && bearer.key == header.key && bearer.key == query.key);
    let salted =
        ClientFacts::read([("x-api-key", &b"sk-secret-000"[..])], "/", &Salt::new([8; 16]));
    assert_ne!(salted.key, bearer.key);
    let mut table = Table::new();
    let placed = table.place(CHAT, &[KEY], &chat(&json!([user("Fix the test.")])));
    let route = route("POST", "/v1beta/models/g:generateContent?key=sk-secret-000").unwrap();
    let body = br#"{"contents":[{"parts":[{"text":"sk-secret-000"}]}]}"#;
    let request = Request::read(&route, body).unwrap();
    for text in [
        format!("{bearer:?}"),
        format!("{placed:?}"),
        format!("{:?}", salt()),
        format!("{route:?}"),
        format!("{request:?}"),
    ] {
        assert!(!text.contains("secret") && !text.contains("sk-"), "{text}");
    }
}

#[test]
fn equal_body_is_retry() {
    let mut table = Table::new();
    let first = chat(&json!([user("Fix the test.")]));
    let one = table.place(CHAT, &[KEY], &first);
    let two = table.place(CHAT, &[KEY], &first);
    assert_eq!((one.attempt, one.turn), (Attempt::First, 1));
    assert_eq!((two.attempt, two.turn, two.input.len()), (Attempt::Repeat, 1, 0));
    table.answer(&two, &[("c1", "bash", "{}")]);
    let next = chat(&json!([user("Fix the test."), called("c1"), result("c1", "ok")]));
    let three = table.place(CHAT, &[KEY], &next);
    assert_eq!((three.attempt, three.turn, three.results.len()), (Attempt::First, 2, 1));
    let four = table.place(CHAT, &[KEY], &next);
    assert_eq!((four.attempt, four.turn, four.results.len()), (Attempt::Repeat, 2, 0));
    table.0.failed(&four.seat, four.kind);
    let five = table.place(CHAT, &[KEY], &next);
    assert_eq!((five.attempt, five.turn), (Attempt::Repeat, 2));
    // An answer was billed, so the same bytes are the next turn.
    for (turn, calls) in [(3, &[("c2", "bash", "{}")][..]), (4, &[]), (5, &[])] {
        table.answer(&five, calls);
        let again = table.place(CHAT, &[KEY], &next);
        assert_eq!((again.attempt, again.turn), (Attempt::First, turn));
    }
}

#[test]
fn changed_body_after_failure_is_retry() {
    let session = [("x-claude-code-session-id", "s1")];
    let body = |beta: bool| {
        let mut body =
            json!({"model": "m", "tools": [{"name": "Bash"}], "messages": [user("Go.")]});
        if beta {
            body["context_management"] = json!({"edits": []});
        }
        body
    };
    let mut table = Table::new();
    let first = table.place("/v1/messages", &session, &body(true));
    // Without a failure, another body is another turn.
    let second = table.place("/v1/messages", &session, &body(false));
    assert_eq!((second.attempt, second.turn), (Attempt::First, 2));
    table.0.failed(&second.seat, second.kind);
    let third = table.place("/v1/messages", &session, &body(true));
    assert_eq!((third.attempt, third.turn), (Attempt::Changed, 2));
    assert_eq!(first.seat, third.seat);
    table.answer(&third, &[]);
    assert_eq!(table.place("/v1/messages", &session, &body(false)).attempt, Attempt::First);
}

#[test]
fn new_messages_and_results_are_reported_once() {
    let mut table = Table::new();
    let mut messages = vec![json!({"role": "system", "content": "Rules."}), user("Fix it.")];
    let first = table.place(CHAT, &[KEY], &chat(&json!(messages)));
    assert_eq!((first.history, first.input.len()), (History::New, 2));
    table.answer(&first, &[("c1", "bash", "{}"), ("c2", "bash", "{}")]);
    messages.extend([called("c1"), result("c1", "one"), result("c2", "two"), user("Faster.")]);
    let second = table.place(CHAT, &[KEY], &chat(&json!(messages)));
    let texts: Vec<_> = second.results.iter().map(|one| (&*one.call_id, &*one.text)).collect();
    assert_eq!(texts, [("c1", "one"), ("c2", "two")]);
    assert_eq!(second.input.len(), 1);
    assert_eq!(second.input[0].plain_text(), "Faster.");
    table.answer(&second, &[]);
    messages.extend([json!({"role": "assistant", "content": "Done."}), user("Thanks.")]);
    let third = table.place(CHAT, &[KEY], &chat(&json!(messages)));
    assert_eq!((third.turn, third.results.len(), third.unmatched), (3, 0, 0));
    assert_eq!(third.input[0].plain_text(), "Thanks.");
}

#[test]
fn errors_in_results_are_read() {
    let mut table = Table::new();
    let session = [("x-claude-code-session-id", "s1")];
    let body =
        |messages: Value| json!({"model": "m", "tools": [{"name": "Bash"}], "messages": messages});
    let first = table.place("/v1/messages", &session, &body(json!([user("Go.")])));
    table.answer(&first, &[("t1", "Bash", "{}"), ("t2", "Bash", "{}")]);
    let block = |id: &str, failed: bool| {
        json!({"type": "tool_result", "tool_use_id": id, "is_error": failed,
               "content": [{"type": "text", "text": id}, {"type": "image", "source": {}}]})
    };
    let results = json!({"role": "user", "content": [block("t1", true), block("t2", false)]});
    let next = body(json!([user("Go."), {"role": "assistant", "content": []}, results]));
    let placed = table.place("/v1/messages", &session, &next);
    let read: Vec<_> = placed.results.iter().map(|one| (&*one.text, one.is_error)).collect();
    assert_eq!(read, [("t1[image]", true), ("t2[image]", false)]);
}

#[test]
fn calls_of_twins_stay_in_their_threads() {
    // Two conversations of one key; the newest result names the thread, whatever else is alike.
    let mut table = Table::new();
    let start = |text: &str| chat(&json!([user(text)]));
    let a = table.place(CHAT, &[KEY], &start("Task A"));
    let b = table.place(CHAT, &[KEY], &start("Task B"));
    assert_ne!(a.seat, b.seat);
    table.answer(&a, &[("ca", "bash", "{}")]);
    table.answer(&b, &[("cb", "bash", "{}")]);
    // A client that shortens its first message is still found by the call.
    let next = chat(&json!([user("Task A (shortened)"), called("ca"), result("ca", "ok")]));
    let a2 = table.place(CHAT, &[KEY], &next);
    assert_eq!((&a2.seat, a2.results.len()), (&a.seat, 1));
    // Another key has no access to the thread.
    let other = [("authorization", "Bearer sk-other")];
    let thief = table.place(CHAT, &other, &next);
    assert_ne!(thief.seat, a.seat);
    assert_eq!(thief.results.len(), 0);
}

#[test]
fn long_results_without_tools_name_their_thread() {
    let mut table = Table::new();
    let task = "Task ".repeat(1000);
    let main = table.place(CHAT, &[KEY], &chat(&json!([user(&task)])));
    // Some servers put the signature of a thought into it.
    let id = "c1".repeat(1000);
    table.answer(&main, &[(&id, "bash", "{}")]);
    let long = "a line of output\n".repeat(1000);
    let history = [user("Task"), called(&id), result(&id, &long), user("Title?")];
    for length in 3..=4 {
        let body = json!({"model": "m", "messages": history[..length]});
        let title = table.place(CHAT, &[KEY], &body);
        assert_eq!((title.kind, title.seat), (Kind::Auxiliary, main.seat.clone()), "{length}");
    }
}

/// A client that stores no answer, because the model refused, adds to its prompt: in the same message or after it.
#[test]
fn prompt_that_grows_stays_in_its_thread() {
    let parts = |texts: &[&str]| {
        let parts: Vec<Value> =
            texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        chat(&json!([{"role": "user", "content": parts}]))
    };
    let messages = |texts: &[&str]| chat(&texts.iter().map(|text| user(text)).collect());
    for write in [&parts as &dyn Fn(&[&str]) -> Value, &messages] {
        let mut table = Table::new();
        let first = table.place(CHAT, &[KEY], &write(&["Fix the test.", "No call was found."]));
        table.answer(&first, &[]);
        let again = "No call was found, again.";
        let grown = write(&["Fix the test.", "No call was found.", again]);
        let second = table.place(CHAT, &[KEY], &grown);
        assert_eq!((&second.seat, second.turn, second.attempt), (&first.seat, 2, Attempt::First));
        table.answer(&second, &[]);
        let third = write(&["Fix the test.", "No call was found.", again, again]);
        let third = table.place(CHAT, &[KEY], &third);
        assert_eq!((&third.seat, third.turn), (&first.seat, 3));
        // An answer in text, without an id that names the thread.
        table.answer(&third, &[]);
        let mut answered = write(&["Fix the test.", "No call was found.", again, again]);
        let history = answered["messages"].as_array_mut().unwrap();
        history
            .extend([json!({"role": "assistant", "content": "Done."}), user("And the other one.")]);
        let fourth = table.place(CHAT, &[KEY], &answered);
        assert_eq!((&fourth.seat, fourth.turn), (&first.seat, 4));
        table.answer(&fourth, &[]);
        // Another prompt is another conversation, and so is the same one after a history that was longer.
        for prompt in
            [&["Fix the other test.", again][..], &["Fix the test."], &["Fix the test.", again]]
        {
            let other = table.place(CHAT, &[KEY], &write(prompt));
            assert_ne!(other.seat.thread, first.seat.thread, "{prompt:?}");
        }
    }
}

#[test]
fn program_started_again_is_new_thread() {
    let mut table = Table::new();
    let start = chat(&json!([user("Fix the test.")]));
    let first = table.place(CHAT, &[KEY], &start);
    table.answer(&first, &[("c1", "bash", "{}")]);
    let next = chat(&json!([user("Fix the test."), called("c1"), result("c1", "ok")]));
    let second = table.place(CHAT, &[KEY], &next);
    table.answer(&second, &[]);
    let again = table.place(CHAT, &[KEY], &start);
    assert_ne!(again.seat.thread, first.seat.thread);
    assert_ne!(again.seat.run, first.seat.run);
    assert_eq!((again.turn, again.attempt, again.history), (1, Attempt::First, History::New));
    // In a run that has a name it is another thread of the same run.
    let mut table = Table::new();
    let target = "/run/a/v1/chat/completions";
    let first = table.place(target, &[KEY], &start);
    table.place(target, &[KEY], &next);
    let again = table.place(target, &[KEY], &start);
    assert_eq!(again.seat.run, first.seat.run);
    assert_ne!(again.seat.thread, first.seat.thread);
}

#[test]
fn continued_response_names_thread_and_adds_its_bytes() {
    let mut table = Table::new();
    let tools = json!([{"type": "function", "name": "bash"}]);
    let first = json!({"model": "m", "tools": tools, "input": "Fix the test."});
    let first = table.place(RESPONSES, &[KEY], &first);
    assert_eq!(first.input[0].plain_text(), "Fix the test.");
    table.answer_with_id(&first, "resp_1", "Hello");
    let next = |id: &str| {
        json!({"model": "m", "tools": tools, "previous_response_id": id,
               "input": [{"role": "user", "content": "Go on."}]})
    };
    let body = next("resp_1");
    let second = table.place(RESPONSES, &[KEY], &body);
    assert_eq!((&second.seat, second.turn, second.history), (&first.seat, 2, History::Grown));
    assert_eq!(second.input.len(), 1);
    let bytes = body.to_string().len() as u64;
    assert_eq!(second.prompt_bytes, first.prompt_bytes + 5 + bytes);
    assert!(second.prompt_known);
    let unknown = table.place(RESPONSES, &[KEY], &next("resp_forged"));
    assert_ne!(unknown.seat, first.seat);
    assert!(!unknown.prompt_known);
}

#[test]
fn stored_conversation_is_thread() {
    let mut table = Table::new();
    let body = |conversation: Value, text: &str| {
        json!({"model": "m", "tools": [{"type": "function", "name": "bash"}], "input": text,
               "conversation": conversation})
    };
    let first = table.place(RESPONSES, &[KEY], &body(json!("conv_1"), "One"));
    let second = table.place(RESPONSES, &[KEY], &body(json!({"id": "conv_1"}), "Two"));
    assert_eq!((&second.seat, second.turn), (&first.seat, 2));
    assert_eq!(thread(&first.seat), "thread-conv_1");
    assert_eq!((second.input.len(), second.history), (1, History::Grown));
    assert!(!second.prompt_known);
    let other = table.place(RESPONSES, &[KEY], &body(json!("conv_2"), "One"));
    assert_ne!((&other.seat.run, &other.seat.thread), (&first.seat.run, &first.seat.thread));
}

#[test]
fn changing_instructions_do_not_rewrite_history() {
    let mut table = Table::new();
    let session = [("x-session-id", "s1")];
    let body = |time: &str, more: &[Value]| {
        let mut messages = vec![json!({"role": "system", "content": time}), user("Go.")];
        messages.extend_from_slice(more);
        chat(&json!(messages))
    };
    table.place(CHAT, &session, &body("12:00", &[]));
    let more = [json!({"role": "assistant", "content": "?"}), user("Yes.")];
    let grown = table.place(CHAT, &session, &body("12:01", &more));
    assert_eq!((grown.history, grown.input.len()), (History::Grown, 1));
    let summary = chat(&json!([user("Summary of the work so far."), more[0], more[1], user("!")]));
    let rewritten = table.place(CHAT, &session, &summary);
    assert_eq!((rewritten.history, rewritten.input.len()), (History::Rewritten, 4));
}

#[test]
fn results_without_ids_answer_calls_by_name() {
    let mut table = Table::new();
    let target = "/run/a/api/chat";
    let first = table.place(target, &[], &chat(&json!([user("Go.")])));
    table.answer(&first, &[("m1", "bash", "{}"), ("m2", "read", "{}"), ("m3", "bash", "{}")]);
    let tool = |name: &str, text: &str| json!({"role": "tool", "tool_name": name, "content": text});
    let next = chat(&json!([
        user("Go."),
        {"role": "assistant", "content": ""},
        tool("read", "r"),
        tool("bash", "b1"),
        {"role": "tool", "content": "b2"},
        tool("bash", "b3"),
    ]));
    let second = table.place(target, &[], &next);
    let read: Vec<_> = second.results.iter().map(|one| (&*one.call_id, &*one.text)).collect();
    assert_eq!(read, [("m2", "r"), ("m1", "b1"), ("m3", "b2")]);
    assert_eq!(second.unmatched, 1);
}

#[test]
fn sub_agent_behind_an_answer_of_its_client_is_a_thread() {
    // Qwen Code begins all its conversations with this pair.
    let context = user("This is the Qwen Code. We are setting up the context.");
    let ready = json!({"role": "assistant", "content": "Got it. Thanks for the context!"});
    let began = |task: &str| chat(&json!([context, ready, user(task)]));
    let mut table = Table::new();
    let main = table.place(CHAT, &[KEY], &began("Refactor the parser."));
    let prompt = "Find all callers of the old parser.";
    table.answer(&main, &[("c1", "agent", &json!({"prompt": prompt}).to_string())]);
    let sub = table.place(CHAT, &[KEY], &began(prompt));
    assert_eq!((sub.kind, sub.parent), (Kind::Sub, Some(main.seat.thread.clone())));
    assert_eq!((sub.turn, &sub.seat.run), (1, &main.seat.run));
    let history = [context, ready, user("Refactor the parser."), called("c1"), result("c1", "two")];
    let back = table.place(CHAT, &[KEY], &chat(&json!(history)));
    assert_eq!((back.kind, back.turn, &back.seat), (Kind::Main, 2, &main.seat));
}

#[test]
fn sub_agents_have_parents() {
    let mut table = Table::new();
    let body = |text: &str| chat(&json!([user(text)]));
    // opencode: sessions that start each other are one run.
    let root = table.place(CHAT, &[("x-session-id", "s1")], &body("Task"));
    let child = [("x-session-id", "s2"), ("x-parent-session-id", "s1")];
    let child = table.place(CHAT, &child, &body("Part"));
    let grandchild = [("x-session-id", "s3"), ("x-parent-session-id", "s2")];
    let grandchild = table.place(CHAT, &grandchild, &body("Part of part"));
    assert_eq!((&child.seat.run, &grandchild.seat.run), (&root.seat.run, &root.seat.run));
    assert_eq!((child.kind, grandchild.kind), (Kind::Sub, Kind::Sub));
    assert_eq!(grandchild.parent, Some(child.seat.thread));
    // A later request of the child without the parent's header stays in the run.
    let later = table.place(CHAT, &[("x-session-id", "s2")], &body("Part"));
    assert_eq!(later.seat.run, root.seat.run);
    // No ids: the prompt of a call is the beginning of the sub-agent's history.
    let main = table.place(CHAT, &[KEY], &body("Main task"));
    let arguments = r#"{"kind":"general","prompt":"Count the files in src."}"#;
    table.answer(&main, &[("c1", "agent", arguments)]);
    let reminders = json!({"role": "user", "content": [
        {"type": "text", "text": "Today is Sunday."},
        {"type": "text", "text": " Count the files in src.\n"},
    ]});
    let sub = table.place(CHAT, &[KEY], &chat(&json!([reminders])));
    assert_eq!((sub.kind, sub.parent), (Kind::Sub, Some(main.seat.thread.clone())));
    assert_eq!(sub.seat.run, main.seat.run);
    let unrelated = table.place(CHAT, &[KEY], &body("general"));
    assert_eq!((unrelated.kind, unrelated.parent), (Kind::Main, None));
}

#[test]
fn summaries_are_not_in_the_conversation() {
    let mut table = Table::new();
    let with_tools = Kind::Compaction { offers_tools: true };
    let without = Kind::Compaction { offers_tools: false };
    let session = [("x-session-id", "s1")];
    let main = table.place(CHAT, &session, &chat(&json!([user("Fix."), user("Now."), user("!")])));
    let prompts = [
        "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do",
        "Your task is to create a detailed summary of the conversation so far, paying",
        "You are performing a CONTEXT CHECKPOINT COMPACTION. Create",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
        "Provide a detailed prompt for continuing our conversation above. Focus",
    ];
    for prompt in prompts {
        let placed = table.place(CHAT, &session, &chat(&json!([user("Fix."), user(prompt)])));
        assert_eq!((placed.kind, placed.turn), (with_tools, 0), "{prompt}");
        assert_eq!(placed.seat, main.seat);
        // Long, and without tools.
        for space in [1, 1000, 2000] {
            let history = "the history \u{e9}\\".repeat(1000);
            let long = format!("{}{prompt} {history}", "\n".repeat(space));
            let body = json!({"model": "m", "messages": [user(&long)]});
            let placed = table.place(CHAT, &session, &body);
            assert_eq!(placed.kind, without, "{space}: {prompt}");
        }
    }
    let quoted = chat(&json!([user("Fix."), user(&format!("Explain: {}", prompts[0]))]));
    let placed = table.place(CHAT, &session, &quoted);
    assert_eq!((placed.kind, placed.turn, placed.history), (Kind::Main, 2, History::Rewritten));
    let metadata = [
        ("session-id", "s1"),
        ("thread-id", "t1"),
        ("x-codex-turn-metadata", r#"{"request_kind":"compaction"}"#),
    ];
    let placed = table.place(CHAT, &metadata, &chat(&json!([user("Fix.")])));
    assert_eq!(placed.kind, with_tools);
}

#[test]
fn server_tools_alone_make_no_turn() {
    let mut table = Table::new();
    for (target, body) in [
        (
            "/v1/messages",
            json!({"messages": [user("q")], "tools": [
            {"type": "web_search_20250305", "name": "web_search"}]}),
        ),
        (
            "/v1beta/models/g:generateContent",
            json!({"contents": [], "tools": [{"googleSearch": {}}]}),
        ),
        (RESPONSES, json!({"input": "q", "tools": [{"type": "web_search"}]})),
        (CHAT, json!({"messages": [user("q")], "tools": []})),
    ] {
        assert_eq!(table.place(target, &[KEY], &body).kind, Kind::Auxiliary, "{target}");
    }
    assert!(table.0.is_empty());
    let shell = json!({"input": "q", "tools": [{"type": "local_shell"}, {"type": "web_search"}]});
    assert_eq!(table.place(RESPONSES, &[KEY], &shell).kind, Kind::Main);
}

#[test]
fn forged_ids_are_harmless() {
    let long = "a".repeat(5000);
    let forged = [
        "../../etc/passwd",
        "..",
        ".",
        "/",
        "a/b",
        "a\\b",
        "a b",
        "a%00b",
        "%2e%2e",
        "-rf",
        "\u{1b}[2J",
        "\u{202e}cod",
        "ä",
        "a;rm",
        "$(id)",
        "`id`",
        "{\"a\":1}",
        "x-0000",
        "a\tb",
        &long,
    ];
    assert_eq!(forged.len(), 20);
    let mut table = Table::new();
    let mut runs = Vec::new();
    let body = chat(&json!([user("Go."), called("known"), result("forged", "ok")]));
    for id in forged {
        let headers = [("session-id", id), ("thread-id", id), ("x-codex-parent-thread-id", id)];
        let placed = table.place(CHAT, &headers, &body);
        for name in [placed.seat.run.id(), thread(&placed.seat), placed.parent.unwrap().as_str()] {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(name.len() <= 120 && name.chars().all(plain), "{id}: {name}");
            assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
        }
        assert_eq!(placed.results.len(), 0);
        runs.push(placed.seat.run);
    }
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 20, "two ids became one run");
    // A run's name is never replaced: the user chose it, and is informed of the mistake.
    let target = route("POST", CHAT).unwrap();
    let body = body.to_string();
    let request = Request::read(&target, body.as_bytes()).unwrap();
    for id in forged.iter().filter(|id| **id != "x-0000") {
        let facts = ClientFacts::read([("x-endstop-run", id.as_bytes())], CHAT, &salt());
        assert!(table.0.place(&facts, &target, &request).is_err(), "{id}");
    }
}

#[test]
fn forged_results_are_counted_not_reported() {
    let mut table = Table::new();
    let session = [("x-session-id", "s1")];
    let first = table.place(CHAT, &session, &chat(&json!([user("Go.")])));
    table.answer(&first, &[("c1", "bash", "{}")]);
    let mut messages = vec![user("Go."), called("c1")];
    messages.extend((0..20).map(|n| result(&format!("forged{n}"), "ok")));
    messages.extend([result("c1", "ok"), result("c1", "again")]);
    let placed = table.place(CHAT, &session, &chat(&json!(messages)));
    assert_eq!((placed.results.len(), placed.unmatched), (1, 21));
}

#[test]
fn full_table_drops_and_reports_oldest_thread() {
    let mut table = Table(Threads::with_capacity(salt(), 3));
    let body = chat(&json!([user("Go.")]));
    let mut place = |id: &str| table.place(CHAT, &[("x-session-id", id)], &body);
    let first = place("s0").seat;
    place("s1");
    place("s2");
    assert_eq!(place("s0").dropped, None);
    let dropped = place("s3").dropped.unwrap();
    assert_eq!(dropped.run.id(), "s1");
    // A response to a dropped thread changes nothing.
    table.0.answered(&dropped, Kind::Main, &turn(&[("c", "bash", "{}")]));
    table.0.failed(&dropped, Kind::Main);
    assert_eq!(table.0.len(), 3);
    assert_eq!(table.place(CHAT, &[("x-session-id", "s0")], &body).seat, first);
}

#[test]
fn forgotten_run_starts_again() {
    let mut table = Table::new();
    let body = chat(&json!([user("Go.")]));
    let first = table.place(CHAT, &[("x-session-id", "s1")], &body);
    table.place(CHAT, &[("x-session-id", "s2")], &body);
    table.0.forget(&first.seat.run);
    assert_eq!(table.0.len(), 1);
    let again = table.place(CHAT, &[("x-session-id", "s1")], &body);
    assert_eq!((again.attempt, again.turn), (Attempt::First, 1));
    assert_eq!(table.place(CHAT, &[("x-session-id", "s2")], &body).attempt, Attempt::Repeat);
}

#[test]
fn moved_cache_mark_changes_no_turn() {
    let mut table = Table::new();
    let system = |time: &str| json!({"role": "system", "content": format!("It is {time}.")});
    let marked = |text: &str| {
        json!({"role": "user", "content": [{"type": "text", "text": text,
            "cache_control": {"type": "ephemeral"}}]})
    };
    let plain = json!({"role": "user", "content": [{"type": "text", "text": "Go."}]});
    let session = [("x-session-id", "s1")];
    let first = table.place(CHAT, &session, &chat(&json!([system("9:00"), marked("Go.")])));
    table.answer(&first, &[("c1", "bash", "{}")]);
    // The mark has moved, and the time is another one: the history has grown all the same.
    let messages = json!([system("9:01"), plain, called("c1"), result("c1", "ok")]);
    let second = table.place(CHAT, &session, &chat(&messages));
    assert_eq!((second.history, second.turn, second.results.len()), (History::Grown, 2, 1));
    assert!(second.input.is_empty(), "{:?}", second.input);
    // Another byte in the same length is another request.
    table.answer(&second, &[("c2", "bash", "{}")]);
    let mut third = json!([system("9:01"), plain, called("c1"), result("c1", "ok")]);
    let third_call = table.place(CHAT, &session, &chat(&third));
    assert_eq!(third_call.attempt, Attempt::First);
    assert_eq!(table.place(CHAT, &session, &chat(&third)).attempt, Attempt::Repeat);
    third[3]["content"] = json!("no");
    assert_eq!(table.place(CHAT, &session, &chat(&third)).attempt, Attempt::First);
}

#[test]
fn known_beginning_finds_its_thread() {
    let mut table = Table::new();
    let long = "x".repeat(5000);
    let begin = [user(&long), user("more")];
    let seat = |table: &mut Table, rest: &[Value]| {
        let messages = [&begin[..], rest].concat();
        table.place(CHAT, &[KEY], &chat(&json!(messages))).seat
    };
    let first = seat(&mut table, &[]);
    let said = json!({"role": "assistant", "content": "so"});
    for number in 0..3 {
        // Without ids and results, the beginning alone names the thread.
        let rest = [said.clone(), user(&format!("question {number}"))];
        assert_eq!(seat(&mut table, &rest), first, "{number}");
    }
    // A third message of the user before the first answer is another beginning.
    assert_ne!(seat(&mut table, &[user("and more"), said]), first);
}

#[test]
fn replaced_id_cannot_be_forged() {
    let mut table = Table::new();
    let body = chat(&json!([user("Go.")]));
    let victim = table.place(CHAT, &[("x-session-id", "team/one")], &body).seat;
    assert!(victim.run.id().starts_with("x-"));
    let forged = table.place(CHAT, &[("x-session-id", victim.run.id())], &body).seat;
    assert_ne!(forged.run, victim.run);
}
