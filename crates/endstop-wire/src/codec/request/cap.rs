//! The output cap in a request, and its lowering by an edit of the body's bytes. Everything else stays byte for byte,
//! so that the provider's cache still recognises the prompt.

use super::fields::{Fields, parsed};
use crate::dialect::CapField;
use std::ops::Range;

/// The place of the output cap in a body.
#[derive(Clone, Copy, Debug)]
pub struct CapPlace {
    /// Names of the object that holds the cap, the first for insertions; empty: the body itself.
    pub(crate) objects: &'static [&'static str],
    /// Names of the cap, the first for insertions.
    pub(crate) names: &'static [&'static str],
    /// The name for insertions, if the server's dialect spells it [`CapField::MaxTokens`].
    pub(crate) older_name: Option<&'static str>,
    /// The name for insertions inside Bedrock's InvokeModel.
    pub(crate) name_inside: Option<&'static str>,
}

impl CapPlace {
    /// A cap at the top of a body, under one name.
    pub(crate) const fn at_top(names: &'static [&'static str]) -> CapPlace {
        CapPlace { objects: &[], names, older_name: None, name_inside: None }
    }

    /// A cap inside an object.
    pub(crate) const fn within(
        objects: &'static [&'static str],
        names: &'static [&'static str],
    ) -> CapPlace {
        CapPlace { objects, names, older_name: None, name_inside: None }
    }

    /// Returns the cap of a body; of several the largest, because a server may take any of them.
    pub(crate) fn read(&self, fields: &Fields<'_>) -> Option<u64> {
        let inside;
        let holder = match self.objects.iter().find(|name| fields.has(name)) {
            Some(name) => {
                inside = fields.object(name);
                &inside
            }
            None if self.objects.is_empty() => fields,
            None => return None,
        };
        // Some clients write `1e6`. Negative numbers mean "no cap".
        let caps = holder.all(self.names).filter_map(parsed::<f64>);
        caps.filter(|cap| *cap >= 0.0).map(|cap| cap as u64).max()
    }
}

/// A body has another shape than its format requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlaceForCap;

/// An edit: the bytes in this range are replaced.
type Edit = (Range<usize>, String);

impl CapPlace {
    /// `true` if a member of this name is an output cap, and `object` the object that holds it (`None`: the body).
    pub fn is_in(&self, object: Option<&str>) -> bool {
        match object {
            None => self.objects.is_empty(),
            Some(name) => self.objects.contains(&name),
        }
    }

    /// Names of the output cap.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Lowers the output cap of a body, or inserts one, and returns the new body. Returns `None` if
    /// the body's own cap is not above `cap`. `is_inside` is `true` inside Bedrock's InvokeModel, and `field` the
    /// name for an inserted cap in Chat Completions, which servers spell in two ways.
    ///
    /// # Errors
    /// The body does not have the format's shape.
    pub fn lower(
        &self,
        is_inside: bool,
        body: &str,
        cap: u64,
        field: CapField,
    ) -> Result<Option<Vec<u8>>, NoPlaceForCap> {
        let fields = Fields::of(body).map_err(|_| NoPlaceForCap)?;
        let name = self.inserted_name(is_inside, field);
        let names = self.names;
        let mut edits: Vec<Edit> = Vec::new();
        // Of two members with one name, servers may take either, so both are edited.
        let holders: Vec<&str> = fields.all(self.objects).collect();
        match self.objects.first() {
            // Most formats have the cap at the top.
            None => {
                lower(body, Holder { text: body, fields: &fields, names }, name, cap, &mut edits);
            }
            Some(object) if holders.is_empty() => {
                edits.push(insert(body, body, &format!("\"{object}\":{{\"{name}\":{cap}}}"))?);
            }
            Some(_) => {
                for holder in holders {
                    // `null` is the same as a missing object.
                    if holder == "null" {
                        edits.push((span(body, holder), format!("{{\"{name}\":{cap}}}")));
                        continue;
                    }
                    let inside = Fields::of(holder).map_err(|_| NoPlaceForCap)?;
                    let holder = Holder { text: holder, fields: &inside, names };
                    lower(body, holder, name, cap, &mut edits);
                }
            }
        }
        Ok((!edits.is_empty()).then(|| apply(body.as_bytes(), edits)))
    }

    /// Returns the name of an inserted cap.
    fn inserted_name(&self, is_inside: bool, field: CapField) -> &'static str {
        let CapPlace { names, older_name, name_inside, .. } = *self;
        let other = match field {
            _ if is_inside && name_inside.is_some() => name_inside,
            CapField::MaxTokens => older_name,
            CapField::MaxCompletionTokens => None,
        };
        other.or(names.first().copied()).unwrap_or("max_tokens")
    }
}

/// An object with the output cap.
#[derive(Clone, Copy)]
struct Holder<'a> {
    text: &'a str,
    fields: &'a Fields<'a>,
    names: &'a [&'static str],
}

/// Adds the edits that make every cap of an object at most `cap`.
fn lower(body: &str, holder: Holder<'_>, name: &str, cap: u64, edits: &mut Vec<Edit>) {
    let caps: Vec<&str> = holder.fields.all(holder.names).collect();
    if caps.is_empty() {
        // An object always has an opening bracket.
        edits.extend(insert(body, holder.text, &format!("\"{name}\":{cap}")));
        return;
    }
    for value in caps {
        // Negative numbers and zero can mean "no cap"; `null` and strings are not caps either.
        let number = serde_json::from_str::<f64>(value).ok();
        if !number.is_some_and(|number| (1.0..=cap as f64).contains(&number)) {
            edits.push((span(body, value), cap.to_string()));
        }
    }
}

/// Returns the edit that puts a member at the beginning of an object.
fn insert(text: &str, object: &str, member: &str) -> Result<Edit, NoPlaceForCap> {
    let open = object.find('{').ok_or(NoPlaceForCap)?;
    let rest = object[open + 1..].trim_start();
    // A member is put before the others, so it needs a comma unless it is alone.
    let comma = if rest.starts_with('}') { "" } else { "," };
    let at = span(text, object).start + open + 1;
    Ok((at..at, format!("{member}{comma}")))
}

/// Returns the range of a part of the text.
pub(super) fn span(text: &str, part: &str) -> Range<usize> {
    // `part` was borrowed from `text`, so the difference of the addresses is its offset.
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// Replaces parts of a body.
pub(super) fn apply(body: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
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
