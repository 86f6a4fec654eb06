//! `endstop run --attach`: images and documents with the task, and the files that are refused.

use crate::cli::{Cli, playing};
use endstop::testkit::Turn;
use serde_json::json;

const GIF: &[u8] = b"GIF89a\x80\x02\xe0\x01";
const GIF_BASE64: &str = "R0lGODlhgALgAQ==";
const PDF: &[u8] = b"%PDF-1.4\n%%EOF\n";
const PDF_BASE64: &str = "JVBERi0xLjQKJSVFT0YK";

fn cli() -> Cli {
    let cli = Cli::new();
    // Named wrongly: the content decides.
    cli.write("wall.png", GIF);
    cli.write("report.pdf", PDF);
    cli
}

#[test]
fn attachments_follow_task_in_order() {
    // An OpenAI-compatible server takes no documents, and Gemini takes no GIF.
    for (api, files) in [
        ("openai-chat", &["wall.png"][..]),
        ("anthropic-messages", &["wall.png", "report.pdf"]),
        ("openai-responses", &["report.pdf", "wall.png"]),
        ("gemini", &["report.pdf"]),
    ] {
        let cli = cli();
        let server = playing([Turn::text("a wall")]);
        let flags = files.iter().flat_map(|file| ["--attach", file]);
        let args: Vec<&str> =
            ["What is this?", "--journal", "off"].into_iter().chain(flags).collect();
        cli.agent(&server, api, &args).exits(0);
        let body = server.requests()[0].body.to_string();
        let at = |part: &str| body.find(part).unwrap_or_else(|| panic!("{api}: {part}: {body}"));
        let mut before = at("What is this?");
        for file in files {
            let (data, media_type) = match *file {
                "wall.png" => (GIF_BASE64, "image/gif"),
                _ => (PDF_BASE64, "application/pdf"),
            };
            assert!(at(data) > before && body.contains(media_type), "{api}: {body}");
            before = at(data);
        }
        assert!(!body.contains("image/png"), "{api}: {body}");
        if api == "openai-responses" {
            assert!(body.contains("\"report.pdf\""), "{body}");
        }
    }
}

#[test]
fn unusable_file_is_named_before_any_request() {
    let cli = cli();
    let server = playing([Turn::text("never")]);
    cli.write("page.png", "<html>");
    cli.write("empty.png", "");
    let mut large = GIF.to_vec();
    large.resize(4_000_000, 7);
    cli.write("large.gif", &large);
    large.resize((64 << 20) + 1, 7);
    cli.write("huge.gif", &large);
    for (api, model, file, expected) in [
        ("openai-chat", "m", "none.png", "--attach none.png: No such file"),
        ("openai-chat", "m", ".", "--attach .: Is a directory"),
        ("openai-chat", "m", "page.png", "--attach page.png: unknown file type: expected a PNG,"),
        ("openai-chat", "m", "empty.png", "--attach empty.png: unknown file type"),
        ("openai-chat", "m", "huge.gif", "--attach huge.gif: larger than 64 MiB"),
        (
            "anthropic-messages",
            "m",
            "large.gif",
            "--attach large.gif: cannot be sent: the API takes images of at most 3932160 bytes, and this has 4000000",
        ),
        (
            "gemini",
            "m",
            "wall.png",
            "--attach wall.png: cannot be sent: the API takes no image/gif",
        ),
        (
            "ollama",
            "m",
            "report.pdf",
            "--attach report.pdf: cannot be sent: the API takes no documents",
        ),
        (
            "openai-chat",
            "gpt-3.5-turbo",
            "wall.png",
            "--attach wall.png: cannot be sent: the model reads only text",
        ),
    ] {
        let url = server.base_url();
        let args = ["run", "Look.", "--model", model, "--api", api, "--base-url", &url];
        let done = cli.run(args.iter().chain(&["--attach", file])).exits(2);
        assert!(done.stderr.contains(expected), "{api} {file}: {}", done.stderr);
    }
    assert!(server.requests().is_empty());
    // Without a model the demo would ignore the file.
    let done = cli.run(["run", "--attach", "wall.png"]).exits(2);
    assert!(done.stderr.contains("no model is configured"), "{}", done.stderr);
    let done = cli.run(["run", "--resume", "last", "--attach", "wall.png"]).exits(2);
    assert!(done.stderr.contains("cannot be used with"), "{}", done.stderr);
}

#[test]
fn resumed_run_still_has_its_attachments() {
    let cli = cli();
    let server =
        playing([Turn::call("read_file", &json!({"path": "note.txt"})), Turn::text("a wall")]);
    cli.write("note.txt", "It is red.");
    let flags = ["--tool", "read_file", "--journal", "j.db", "--max-turns", "1"];
    let args = [&["What is this?", "--attach", "wall.png"], &flags[..]].concat();
    cli.agent(&server, "openai-chat", &args).exits(20);
    let resume = ["run", "--resume", "last", "--journal", "j.db", "--max-turns", "2"];
    cli.run(resume.iter().chain(&["--trust-journal"])).exits(0);
    let requests = server.requests();
    assert!(requests[1].body.to_string().contains(GIF_BASE64), "{}", requests[1].body);
}

#[test]
fn replay_needs_same_attachments() {
    let cli = cli();
    let server = playing([Turn::text("a wall")]);
    let task = ["What is this?", "--attach", "wall.png", "--record", "r.jsonl"];
    cli.agent(&server, "openai-chat", &task).exits(0);
    cli.run(["run", "--replay", "r.jsonl", "--attach", "wall.png"]).exits(0);
    cli.run(["run", "--replay", "r.jsonl", "--attach", "report.pdf"]).exits(2);
    cli.run(["run", "--replay", "r.jsonl"]).exits(2);
    assert_eq!(server.requests().len(), 1);
}
