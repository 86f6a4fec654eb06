//! Lowers the output cap in a body by an edit of its bytes. Everything else stays byte for byte,
//! so that the provider's cache still recognises the prompt.

use super::read::{Fields, Request, cap_place};
use endstop_wire::WireFormat;
use endstop_wire::dialect::CapField;
use std::ops::Range;

/// The reason why a body cannot have this cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapError {
    /// The budget for reasoning must be below the cap.
    #[error("the output cap {cap} is not above the request's reasoning budget {budget}")]
    Thinking {
        /// The budget, in tokens.
        budget: u64,
        /// The cap, in tokens.
        cap: u64,
    },
    /// A field has another type than the format requires.
    #[error("the body has no object for the output cap")]
    Shape,
}

/// An edit: the bytes in this range are replaced.
type Edit = (Range<usize>, String);

/// Lowers the output cap of a request, or inserts one, and returns the new body. Returns `None` if
/// the body's own cap is not above `cap`. `body` must be the one that the request was read from.
/// `field` is the name for an inserted cap in Chat Completions, which servers spell in two ways.
///
/// ```
/// use endstop_guard::exchange::{Request, cap_output, route};
/// use endstop_wire::dialect::CapField;
/// let body = br#"{ "max_tokens" : 128000, "messages": [] }"#;
/// let request = Request::read(&route("POST", "/v1/messages")?, body)?;
/// let capped = cap_output(&request, body, 1000, CapField::MaxTokens)?.unwrap();
/// assert_eq!(capped, br#"{ "max_tokens" : 1000, "messages": [] }"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The reasoning budget is not below the cap, or the body does not have the format's shape.
pub fn cap_output(
    request: &Request<'_>,
    body: &[u8],
    cap: u64,
    field: CapField,
) -> Result<Option<Vec<u8>>, CapError> {
    if let Some(budget) = request.thinking.filter(|budget| *budget >= cap) {
        return Err(CapError::Thinking { budget, cap });
    }
    let text = std::str::from_utf8(body).map_err(|_| CapError::Shape)?;
    let fields = Fields::of(text).map_err(|_| CapError::Shape)?;
    let place = cap_place(request.shape);
    let name = insertion(request, field, place.names);
    let mut edits: Vec<Edit> = Vec::new();
    // Of two members with one name, servers may take either, so both are edited.
    let holders: Vec<&str> = fields.all(place.objects).collect();
    match place.objects.first() {
        // Most formats have the cap at the top.
        None => lower(text, text, &fields, place.names, name, cap, &mut edits),
        Some(object) if holders.is_empty() => {
            edits.push(insert(text, text, &format!("\"{object}\":{{\"{name}\":{cap}}}"))?);
        }
        Some(_) => {
            for holder in holders {
                // `null` is the same as a missing object.
                if holder == "null" {
                    edits.push((span(text, holder), format!("{{\"{name}\":{cap}}}")));
                    continue;
                }
                let inside = Fields::of(holder).map_err(|_| CapError::Shape)?;
                lower(text, holder, &inside, place.names, name, cap, &mut edits);
            }
        }
    }
    Ok((!edits.is_empty()).then(|| apply(body, edits)))
}

/// Returns the name of an inserted cap.
fn insertion(request: &Request<'_>, field: CapField, names: &[&'static str]) -> &'static str {
    match (request.shape, request.format, field) {
        (WireFormat::OpenAiChat, _, CapField::MaxTokens) => "max_tokens",
        // Amazon's own models have another name inside InvokeModel than in Converse.
        (WireFormat::BedrockConverse, WireFormat::BedrockInvoke, _) => "max_new_tokens",
        _ => names.first().copied().unwrap_or("max_tokens"),
    }
}

/// Adds the edits that make every cap of an object at most `cap`.
fn lower(
    text: &str,
    holder: &str,
    fields: &Fields<'_>,
    names: &[&str],
    name: &str,
    cap: u64,
    edits: &mut Vec<Edit>,
) {
    let caps: Vec<&str> = fields.all(names).collect();
    if caps.is_empty() {
        // An object always has an opening bracket.
        edits.extend(insert(text, holder, &format!("\"{name}\":{cap}")));
        return;
    }
    for value in caps {
        // Negative numbers and zero can mean "no cap"; `null` and strings are not caps either.
        let number = serde_json::from_str::<f64>(value).ok();
        if !number.is_some_and(|number| (1.0..=cap as f64).contains(&number)) {
            edits.push((span(text, value), cap.to_string()));
        }
    }
}

/// Returns the edit that puts a member at the beginning of an object.
fn insert(text: &str, object: &str, member: &str) -> Result<Edit, CapError> {
    let open = object.find('{').ok_or(CapError::Shape)?;
    let rest = object[open + 1..].trim_start();
    // A member is put before the others, so it needs a comma unless it is alone.
    let comma = if rest.starts_with('}') { "" } else { "," };
    let at = span(text, object).start + open + 1;
    Ok((at..at, format!("{member}{comma}")))
}

/// Returns the range of a part of the text.
fn span(text: &str, part: &str) -> Range<usize> {
    // `part` was borrowed from `text`, so the difference of the addresses is its offset.
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

fn apply(body: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = Vec::with_capacity(body.len() + 64);
    let mut from = 0;
    for (range, text) in edits {
        out.extend_from_slice(&body[from..range.start]);
        out.extend_from_slice(text.as_bytes());
        from = range.end;
    }
    out.extend_from_slice(&body[from..]);
    out
}
