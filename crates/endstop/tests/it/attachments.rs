//! Images and documents from users and from tools.

use crate::journal::Place;
use endstop::provider::http::HttpProvider;
use endstop::testkit::{ScriptedModel, Server, Turn};
use endstop::tool::{IntoToolOutput, OutputPart, Tool, ToolOutput, tool_fn, try_tool_fn};
use endstop::{
    Agent, Attachment, Document, Image, Limits, NanoUsd, Part, Price, RunInput, Termination,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

const GIF: &[u8] = b"GIF89a\x80\x02\xe0\x01";

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A file of this many bytes that does not compress.
fn gif(bytes: usize) -> Vec<u8> {
    let mut file = GIF.to_vec();
    let mut state = 1_u32;
    while file.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        file.push((state >> 24) as u8);
    }
    file
}

fn camera(bytes: usize) -> impl Tool {
    try_tool_fn("camera", "Takes a photo.", move |_: Nothing, _| async move {
        Ok(ToolOutput::ok("Taken:").with(Image::from_bytes(&gif(bytes), "image/gif")?))
    })
}

fn provider(server: &Server, model: &str) -> HttpProvider {
    let options = HttpProvider::builder(model).base_url(server.base_url());
    options.env(|name| name.ends_with("_KEY").then(|| "k".into())).build().unwrap()
}

#[tokio::test]
async fn image_of_tool_reaches_model() {
    for (model, shown) in [
        ("anthropic/claude-sonnet-4-5", true),
        ("openai/gpt-4.1-mini", true),
        ("deepseek/deepseek-chat", false),
    ] {
        let server =
            Server::script([Turn::call("camera", &json!({})), Turn::text("a wall")]).unwrap();
        let agent =
            Agent::builder(provider(&server, model)).tool(camera(10)).finish_tool(false).build();
        let outcome = agent.unwrap().run("Look.").unwrap().await;
        assert!(outcome.is_success(), "{model}: {outcome}");
        let result = outcome.messages.iter().flat_map(|m| m.tool_results()).next().unwrap();
        assert_eq!(result.content, "Taken:\n[image: image/gif, 640x480 pixels, 10 bytes]");
        // The conversation keeps it, also for a model that does not see.
        assert_eq!(result.attachments.len(), 1);
        let request = server.requests()[1].body.to_string();
        assert_eq!(request.contains("R0lGODlhgALgAQ=="), shown, "{model}: {request}");
        assert_eq!(request.contains("not shown: the model reads only text"), !shown, "{model}");
    }
}

#[tokio::test]
async fn invalid_input_is_refused_at_start() {
    let server = Server::script([Turn::text("ok")]).unwrap();
    let agent = |model| Agent::builder(provider(&server, model)).build().unwrap();
    let claude = agent("anthropic/claude-sonnet-4-5");
    let refused = |agent: &Agent, part: Part| {
        agent.run(vec![Part::Text { text: "Look.".into() }, part]).unwrap_err().to_string()
    };
    let image = |media_type: &str, data: &str| {
        Part::Image(Image::Base64 { media_type: media_type.into(), data: data.into() })
    };
    let problem = refused(&claude, image("image/png", "R0lGODlhgALgAQ=="));
    assert_eq!(problem, "invalid input: invalid image: the data is image/gif, not image/png");
    let problem = refused(&claude, image("image/png", "PGh0bWw+"));
    assert_eq!(problem, "invalid input: invalid image: the data is not image/png");
    assert!(refused(&claude, image("image/bmp", "Qk0=")).contains("unknown media type"));
    assert!(refused(&claude, image("image/png", "%")).contains("not base64"));
    let huge = Image::from_bytes(&gif(4_000_000), "image/gif").unwrap();
    let problem = refused(&claude, Part::Image(huge));
    assert!(problem.contains("at most 3932160 bytes, and this has 4000000"), "{problem}");
    let pdf = Document::from_bytes(b"%PDF-1.4\n", "application/pdf").unwrap();
    let problem = refused(&agent("ollama/qwen3-vl"), Part::Document(pdf.clone()));
    assert!(problem.ends_with("cannot be sent: the API takes no documents"), "{problem}");
    let gif = Image::from_bytes(GIF, "image/gif").unwrap();
    let problem = refused(&agent("deepseek/deepseek-chat"), Part::Image(gif.clone()));
    assert!(problem.ends_with("the model reads only text"), "{problem}");
    assert!(server.requests().is_empty());
    let input = RunInput::new("Look.").with(gif).with(pdf);
    assert!(claude.run(input).unwrap().await.is_success());
    let content = server.requests()[0].body["messages"][0]["content"].to_string();
    assert!(content.contains("image/gif") && content.contains("application/pdf"), "{content}");
}

#[test]
fn outputs_have_several_parts() {
    let gif = Image::from_bytes(GIF, "image/gif").unwrap();
    let parts: Vec<OutputPart> = vec!["Before:".into(), gif.clone().into(), "after".into()];
    let output = parts.into_tool_output();
    assert_eq!(output.content, "Before:\n[image: image/gif, 640x480 pixels, 10 bytes]\nafter");
    assert_eq!(output.attachments, [Attachment::Image(gif.clone())]);
    // Providers reject an empty result.
    assert_eq!(Vec::<OutputPart>::new().into_tool_output(), ToolOutput::ok("done"));
    assert_eq!(().into_tool_output(), ToolOutput::ok("done"));
    assert_eq!(gif.into_tool_output().attachments.len(), 1);
    assert!(ToolOutput::file(b"<html>", "image/gif").is_err());
}

#[tokio::test]
async fn damaged_image_of_tool_is_named() {
    let tool = tool_fn("camera", "Takes a photo.", |_: Nothing, _| async {
        let data = "PGh0bWw+".to_owned();
        let image = Image::Base64 { media_type: "image/png".into(), data };
        ToolOutput { attachments: vec![image.into()], ..ToolOutput::ok("Taken.") }
    });
    let turns = [Turn::call("camera", &json!({})), Turn::text("nothing")];
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(tool).finish_tool(false).build();
    let outcome = agent.unwrap().run("Look.").unwrap().await;
    let result = outcome.messages.iter().flat_map(|m| m.tool_results()).next().unwrap();
    assert_eq!(result.content, "Taken.\n[not shown: invalid image: the data is not image/png]");
    assert!(result.attachments.is_empty());
}

#[tokio::test]
async fn changed_image_is_progress() {
    let shots = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tool = |change: usize| {
        let shots = std::sync::Arc::clone(&shots);
        tool_fn("camera", "Takes a photo.", move |_: Nothing, _| {
            let shot = shots.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut file = gif(40);
            file[20] = (shot * change) as u8;
            async move { Image::from_bytes(&file, "image/gif") }
        })
    };
    for (change, termination) in [(1, Termination::Stop), (0, Termination::ErrorNoProgress)] {
        let mut turns = vec![Turn::call("camera", &json!({})); 12];
        turns.push(Turn::text("done"));
        let limits = Limits { max_turns: Some(20), ..Limits::default() };
        let agent = Agent::builder(ScriptedModel::new(turns))
            .limits(limits)
            .tool(tool(change))
            .finish_tool(false)
            .build()
            .unwrap();
        assert_eq!(agent.run("Watch.").unwrap().await.termination, termination);
    }
}

#[tokio::test]
async fn ceiling_counts_images_by_model() {
    // Two images of eight tiles each: 96,338 tokens of gpt-4o-mini, and 2890 of gpt-4o.
    let mut wide = GIF.to_vec();
    wide[6..10].copy_from_slice(&[0x00, 0x08, 0x00, 0x03]);
    let wide = Image::from_bytes(&wide, "image/gif").unwrap();
    let price = Price { input: NanoUsd::from_usd(1.0), ..Price::default() };
    for (model, fits) in [("openai/gpt-4o-mini", false), ("openai/gpt-4o", true)] {
        let server = Server::script([Turn::text("two walls")]).unwrap();
        let limits = Limits { max_budget_usd: Some(0.05), ..Limits::default() };
        let agent = Agent::builder(provider(&server, model)).price(price).limits(limits);
        let input = RunInput::new("Compare.").with(wide.clone()).with(wide.clone());
        let outcome = agent.build().unwrap().run(input).unwrap().await;
        assert_eq!(outcome.is_success(), fits, "{model}: {outcome}");
        if !fits {
            assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
            assert!(server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn journal_stores_image_once_and_replays() {
    let place = Place::new();
    let journal = place.journal();
    let bytes = 300_000;
    let mut turns = vec![Turn::call("camera", &json!({}))];
    turns.extend((0..6).map(|turn| Turn::text(format!("answer {turn}"))));
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(camera(bytes))
        .finish_tool(false)
        .journal(journal.clone())
        .build()
        .unwrap();
    let session = agent.session();
    let mut sizes = Vec::new();
    for run in 0..6 {
        let outcome = session.run(format!("Question {run}.")).unwrap().await;
        assert!(outcome.is_success(), "{outcome}");
        let folder = std::fs::read_dir(place.file().parent().unwrap()).unwrap();
        sizes.push(folder.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>());
    }
    // The event of the first run, and the conversation of the second one; the write-ahead log may
    // have a copy of each.
    assert!(sizes[5] < 5 * bytes as u64, "{sizes:?}");
    assert!(sizes[5] - sizes[2] < bytes as u64, "{sizes:?}");
    let image = Image::from_bytes(&gif(bytes), "image/gif").unwrap();
    for run in journal.runs(10).unwrap() {
        let recorded = journal.load(&run.id).unwrap();
        let replay = recorded.replay(None).unwrap();
        let outcome = replay.outcome().unwrap();
        let results = outcome.messages.iter().flat_map(|m| m.tool_results());
        let attachments: Vec<_> = results.flat_map(|result| &result.attachments).collect();
        assert_eq!(attachments, [&Attachment::Image(image.clone())]);
    }
}
