//! Reads a chunk of the documented shape without serde.
//!
//! ```text
//! {"id":"x","choices":[{"delta":{"content":"It"}}]}   read
//! {"id":7,"choices":[{"delta":{"content":["It"]}}]}   left to serde
//! ```
//!
//! Whatever is read is what serde reads; an object with a field twice is refused by both.

use super::wire::{Arguments, Call, Choice, Chunk, Content, Counts, Details, Function, Message};
use crate::bounded::{First, ITEMS_CAP, Indexed, List};
use crate::json_reader::JsonReader;

/// Reads a chunk, or returns `None` if anything in it is unusual.
pub(super) fn chunk(text: &str) -> Option<Chunk<'_, Counts<'_>>> {
    let mut reader = JsonReader::new(text);
    let mut chunk = Chunk::default();
    let mut seen = Seen::default();
    reader.object(|value, name| {
        match name {
            "id" => chunk.id = seen.first(0, value)?.string()?,
            "model" => chunk.model = seen.first(1, value)?.string()?,
            "object" => chunk.object = seen.first(2, value)?.string()?,
            "service_tier" => chunk.service_tier = seen.first(3, value)?.string()?,
            "choices" => {
                if !seen.first(4, value)?.null()? {
                    first_choice(value, &mut chunk.choices.insert(First(None)).0)?;
                }
            }
            "usage" => {
                if !seen.first(5, value)?.null()? {
                    usage(value, chunk.usage.insert(Box::default()))?;
                }
            }
            "error" => chunk.error = seen.first(6, value)?.raw()?,
            // If it is not null, it can contain the usage, which `usage::chunk` reads in a second pass.
            "x_groq" => seen.first(7, value)?.null()?.then_some(())?,
            "message" => chunk.message = seen.first(8, value)?.raw()?,
            "detail" => chunk.detail = seen.first(9, value)?.raw()?,
            "code" => chunk.code = seen.first(10, value)?.raw()?,
            _ => value.skip()?,
        }
        Some(())
    })?;
    reader.end()?;
    Some(chunk)
}

/// The fields of an object that were read.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    /// Returns the value unless a field with this number was read before.
    fn first<'v, 'a>(
        &mut self,
        field: u32,
        value: &'v mut JsonReader<'a>,
    ) -> Option<&'v mut JsonReader<'a>> {
        let bit = 1 << field;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new.then_some(value)
    }
}

/// Reads a value with `read`, unless it is `null`.
#[expect(clippy::option_option, reason = "the outer `None` leaves the text to serde")]
fn unless_null<'a, T>(
    value: &mut JsonReader<'a>,
    read: impl FnOnce(&mut JsonReader<'a>) -> Option<T>,
) -> Option<Option<T>> {
    if value.null()? { Some(None) } else { read(value).map(Some) }
}

fn first_choice<'a>(value: &mut JsonReader<'a>, first: &mut Option<Choice<'a>>) -> Option<()> {
    value.list(|item| {
        if first.is_none() {
            choice(item, first.insert(Choice::default()))?;
            // Serde reads the others, and discards them.
            if first.as_ref().is_some_and(|choice| choice.index().unwrap_or(0) != 0) {
                *first = None;
            }
            return Some(());
        }
        choice(item, &mut Choice::default())
    })
}

fn choice<'a>(value: &mut JsonReader<'a>, choice: &mut Choice<'a>) -> Option<()> {
    let mut seen = Seen::default();
    value.object(|value, name| {
        match name {
            "index" => choice.index = seen.first(0, value)?.count()?,
            "delta" => choice.delta = unless_null(seen.first(1, value)?, message)?,
            "message" => choice.message = unless_null(seen.first(2, value)?, message)?,
            "finish_reason" => choice.finish_reason = seen.first(3, value)?.string()?,
            "stop_reason" => choice.stop_reason = seen.first(4, value)?.raw()?,
            "matched_stop" => choice.matched_stop = seen.first(5, value)?.raw()?,
            "logprobs" => choice.logprobs = seen.first(6, value)?.raw()?,
            "usage" => choice.usage = seen.first(7, value)?.raw()?,
            "error" => choice.error = seen.first(8, value)?.raw()?,
            "native_finish_reason" => {
                choice.native_finish_reason = seen.first(9, value)?.string()?;
            }
            _ => value.skip()?,
        }
        Some(())
    })
}

fn message<'a>(value: &mut JsonReader<'a>) -> Option<Box<Message<'a>>> {
    let mut message = Box::<Message<'a>>::default();
    let mut seen = Seen::default();
    value.object(|value, name| {
        match name {
            "content" => message.content = content(seen.first(0, value)?)?,
            "reasoning_content" => message.reasoning_content = content(seen.first(1, value)?)?,
            "reasoning" => message.reasoning = content(seen.first(2, value)?)?,
            "reasoning_details" => message.reasoning_details = seen.first(3, value)?.raw()?,
            "refusal" => message.refusal = seen.first(4, value)?.string()?,
            "tool_calls" => message.tool_calls = unless_null(seen.first(5, value)?, calls)?,
            "function_call" => {
                message.function_call = unless_null(seen.first(6, value)?, function)?;
            }
            _ => value.skip()?,
        }
        Some(())
    })?;
    Some(message)
}

/// Reads text or `null`.
fn content<'a>(value: &mut JsonReader<'a>) -> Option<Content<'a>> {
    Some(value.string()?.0.map_or(Content::None, Content::Text))
}

fn calls<'a>(value: &mut JsonReader<'a>) -> Option<List<Call<'a>>> {
    let mut calls = Vec::new();
    value.list(|item| {
        let mut call = Call::default();
        let mut seen = Seen::default();
        item.object(|value, name| {
            match name {
                "index" => call.index = seen.first(0, value)?.count()?,
                "id" => call.id = seen.first(1, value)?.string()?,
                "function" => call.function = unless_null(seen.first(2, value)?, function)?,
                _ => value.skip()?,
            }
            Some(())
        })?;
        (calls.len() < ITEMS_CAP).then_some(())?;
        calls.push(call);
        Some(())
    })?;
    Some(List(calls))
}

fn function<'a>(value: &mut JsonReader<'a>) -> Option<Function<'a>> {
    let mut function = Function::default();
    let mut seen = Seen::default();
    value.object(|value, name| {
        match name {
            "name" => function.name = seen.first(0, value)?.string()?,
            "arguments" => function.arguments = arguments(seen.first(1, value)?)?,
            _ => value.skip()?,
        }
        Some(())
    })?;
    Some(function)
}

fn arguments<'a>(value: &mut JsonReader<'a>) -> Option<Arguments<'a>> {
    if value.is_string()? {
        return Some(Arguments(value.string()?.0?));
    }
    value.raw().map(Arguments::of_value)
}

fn usage<'a>(value: &mut JsonReader<'a>, usage: &mut Counts<'a>) -> Option<()> {
    let mut seen = Seen::default();
    value.object(|value, name| {
        match name {
            "prompt_tokens" => usage.prompt_tokens = seen.first(0, value)?.count()?,
            "completion_tokens" => usage.completion_tokens = seen.first(1, value)?.count()?,
            "total_tokens" => usage.total_tokens = seen.first(2, value)?.count()?,
            "prompt_tokens_details" => {
                usage.prompt_tokens_details = unless_null(seen.first(3, value)?, details)?;
            }
            "completion_tokens_details" => {
                usage.completion_tokens_details = unless_null(seen.first(4, value)?, details)?;
            }
            "prompt_cache_hit_tokens" => {
                usage.prompt_cache_hit_tokens = seen.first(5, value)?.count()?;
            }
            "cached_tokens" => usage.cached_tokens = seen.first(6, value)?.count()?,
            "num_cached_tokens" => usage.num_cached_tokens = seen.first(7, value)?.count()?,
            "cache_read_input_tokens" => {
                usage.cache_read_input_tokens = seen.first(8, value)?.count()?;
            }
            "cache_creation_input_tokens" => {
                usage.cache_creation_input_tokens = seen.first(9, value)?.count()?;
            }
            "reasoning_tokens" => usage.reasoning_tokens = seen.first(10, value)?.count()?,
            "cost" => usage.cost = seen.first(11, value)?.raw()?,
            "cost_in_usd_ticks" => usage.cost_in_usd_ticks = seen.first(12, value)?.count()?,
            "is_byok" => usage.is_byok = seen.first(13, value)?.string()?,
            "cost_details" => usage.cost_details = seen.first(14, value)?.raw()?,
            "service_tier" => usage.service_tier = seen.first(15, value)?.string()?,
            "server_tool_use" => usage.server_tool_use = seen.first(16, value)?.raw()?,
            "num_sources_used" => usage.num_sources_used = seen.first(17, value)?.count()?,
            _ => value.skip()?,
        }
        Some(())
    })
}

fn details(value: &mut JsonReader<'_>) -> Option<Details> {
    let mut details = Details::default();
    let mut seen = Seen::default();
    value.object(|value, name| {
        match name {
            "cached_tokens" => details.cached = seen.first(0, value)?.count()?,
            "cache_write_tokens" => details.cache_write = seen.first(1, value)?.count()?,
            "reasoning_tokens" => details.reasoning = seen.first(2, value)?.count()?,
            "audio_tokens" => details.audio = seen.first(3, value)?.count()?,
            "image_tokens" => details.image = seen.first(4, value)?.count()?,
            _ => value.skip()?,
        }
        Some(())
    })?;
    Some(details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares with serde. Returns `true` if the chunk was read here.
    fn agrees(text: &str) -> bool {
        let Some(quick) = chunk(text) else { return false };
        let serde: Chunk<'_, Counts<'_>> = serde_json::from_str(text)
            .unwrap_or_else(|e| panic!("serde refuses what was read: {e}\n{text}"));
        assert_eq!(format!("{quick:?}"), format!("{serde:?}"), "{text}");
        true
    }

    const BODY: &str = r#"{"id":"c","object":"chat.completion","created":1.5e3,"model":"m","choices":[{"index":1,
        "message":{}},{"index":0,"message":{"role":"assistant","content":"a\"b\n","refusal":null,"reasoning":"r",
        "reasoning_content":"","annotations":[{"a":[-1,true]}],"reasoning_details":[{"type":"t"}],"tool_calls":[
        {"id":"i","index":0,"type":"function","function":{"name":"n","arguments":"{\"p\":\"\\u00e9\"}"}},
        {"function":{"name":"o","arguments":{"p":1}}}],"function_call":null},"logprobs":null,
        "finish_reason":"tool_calls","stop_reason":12,"native_finish_reason":"x"}],"usage":{"prompt_tokens":9,
        "completion_tokens":8,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":3,"image_tokens":null},"cost":0.5,"is_byok":null,
        "server_tool_use":{"web":1},"cost_details":{"upstream_inference_cost":null}},"service_tier":"flex",
        "system_fingerprint":null,"error":null,"x_groq":null,"code":5,"detail":"","message":["m"]}"#;

    #[test]
    fn usual_body_is_read() {
        assert!(agrees(BODY));
        assert!(agrees(r#"{"choices":[{"delta":{"content":"It"},"finish_reason":null}]}"#));
        assert!(agrees("{}") && agrees(r#" {"choices":[],"usage":{}} "#));
    }

    #[test]
    fn unusual_shapes_are_left() {
        for text in [
            r#"{"id":7}"#,
            r#"{"id":"a","id":"b"}"#,
            r#"{"choices":[],"\u0063hoices":null}"#,
            r#"{"choices":{}}"#,
            r#"{"choices":[[]]}"#,
            r#"{"choices":[{"message":{"content":[{"type":"text"}]}}]}"#,
            r#"{"choices":[{"message":{"tool_calls":{}}}]}"#,
            r#"{"usage":{"prompt_tokens":"9"}}"#,
            r#"{"usage":{"prompt_tokens":9,"prompt_tokens":9}}"#,
            r#"{"usage":[]}"#,
            r#"{"usage":"none"}"#,
            r#"{"x_groq":{}}"#,
            "[]",
            "{} {}",
        ] {
            assert!(chunk(text).is_none(), "{text}");
        }
        let calls = |n| {
            format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{}{{}}]}}}}]}}"#, "{},".repeat(n - 1))
        };
        assert!(agrees(&calls(ITEMS_CAP)) && chunk(&calls(ITEMS_CAP + 1)).is_none());
    }

    #[test]
    fn cut_body_is_never_read() {
        for end in 0..BODY.len() {
            assert!(chunk(&BODY[..end]).is_none(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn changed_body_is_read_as_serde_reads_it(
            changes in proptest::collection::vec(
                (0..BODY.len(), 0..6_usize, r#"[\[\]{}",:a0\\n.-]|null|"x"|\{\}|\[\]|-1|1\.5|"id":|"choices":|"index":0,"#),
                1..4,
            ),
        ) {
            let mut text = BODY.to_owned();
            for (at, length, new) in changes {
                let at = at.min(text.len());
                text.replace_range(at..text.len().min(at + length), &new);
            }
            agrees(&text);
        }
    }
}
