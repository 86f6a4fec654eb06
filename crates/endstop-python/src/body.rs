//! The body of a response from what Python programs hold: bytes, text, a dict, an object of an SDK,
//! the chunks of a stream, or the response object of an HTTP client.

use crate::exit::enter;
use crate::json;
use endstop_wire::Headers;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};
use serde_json::Value;

/// Input of this many bytes is decoded without the interpreter lock, so that other threads run.
pub(crate) const DETACH_FROM: usize = 10_000;

/// A response as bytes, with the status and the headers if an HTTP response carried it.
pub(crate) struct Body<'py> {
    content: Content<'py>,
    /// Status of the HTTP response; `None`: the object has none.
    pub(crate) status: Option<u16>,
    pub(crate) headers: Headers,
}

enum Content<'py> {
    Bytes(Bound<'py, PyBytes>),
    Text(PyBackedStr),
    Owned(Vec<u8>),
}

impl<'py> Body<'py> {
    /// Reads a response object.
    pub(crate) fn of(response: &Bound<'py, PyAny>) -> PyResult<Body<'py>> {
        if let Ok(bytes) = response.cast::<PyBytes>() {
            return Ok(Body::new(Content::Bytes(bytes.clone())));
        }
        if let Ok(text) = response.cast::<PyString>() {
            return Ok(Body::new(Content::Text(PyBackedStr::try_from(text.clone())?)));
        }
        if response.is_instance_of::<PyByteArray>() || response.is_instance_of::<PyMemoryView>() {
            // Copied, because another thread may write to the buffer while it is decoded.
            let copy = response.py().get_type::<PyBytes>().call1((response,))?;
            return Ok(Body::new(Content::Bytes(copy.cast_into::<PyBytes>()?)));
        }
        if response.is_instance_of::<PyDict>() {
            return Body::of_json(&json::dumps(response)?);
        }
        if response.is_instance_of::<PyList>() || response.is_instance_of::<PyTuple>() {
            return chunks(response).map(|bytes| Body::new(Content::Owned(bytes)));
        }
        // From here on code of an SDK runs, which may give up the interpreter lock.
        let _inside = enter(response.py());
        if let Some(body) = of_sdk(response)? {
            return Ok(body);
        }
        if let Some(body) = of_http(response)? {
            return Ok(body);
        }
        let class = response.get_type().fully_qualified_name()?;
        Err(PyTypeError::new_err(format!(
            "invalid response of type `{class}`: expected bytes, str, dict, an object of an SDK, a \
             list of a stream's chunks, or an HTTP response"
        )))
    }

    fn new(content: Content<'py>) -> Body<'py> {
        Body { content, status: None, headers: Headers::new() }
    }

    /// Reads JSON that the SDK's objects or a dict were written as.
    fn of_json(text: &Bound<'py, PyString>) -> PyResult<Body<'py>> {
        let text = PyBackedStr::try_from(text.clone())?;
        Ok(Body::new(match camel_case(&text) {
            Some(renamed) => Content::Owned(renamed),
            None => Content::Text(text),
        }))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes.as_bytes(),
            Content::Text(text) => text.as_bytes(),
            Content::Owned(bytes) => bytes,
        }
    }
}

/// Reads an object of an SDK, which writes itself as JSON. `None` for any other object.
fn of_sdk<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Body<'py>>> {
    let py = object.py();
    if let Some(dump) = object.getattr_opt("model_dump_json")? {
        let options = PyDict::new(py);
        // The aliases are the names on the wire: Google's objects have others in Python. Fields
        // that were never set would read as if the server had sent `null`.
        options.set_item("by_alias", true)?;
        options.set_item("exclude_none", true)?;
        let text = dump.call((), Some(&options))?.cast_into::<PyString>()?;
        return Body::of_json(&text).map(Some);
    }
    // Objects of a protobuf or of another SDK, which have the fields as a dict.
    if let Some(to_dict) = object.getattr_opt("to_dict")? {
        return Body::of_json(&json::dumps(&to_dict.call0()?)?).map(Some);
    }
    Ok(None)
}

/// Reads a response of `httpx`, `requests` or a similar client, whose body was read.
fn of_http<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Body<'py>>> {
    let Some(content) = object.getattr_opt("content")? else { return Ok(None) };
    // `content` of another type is not a body: messages of Anthropic's SDK have a list of blocks.
    let Ok(content) = content.cast_into::<PyBytes>() else { return Ok(None) };
    let mut body = Body::new(Content::Bytes(content));
    if let Some(status) = object.getattr_opt("status_code")? {
        body.status = Some(status.extract()?);
    }
    if let Some(headers) = object.getattr_opt("headers")? {
        body.headers = read_headers(&headers)?;
    }
    Ok(Some(body))
}

/// Reads a mapping of header names to values. A value that is not text is ignored.
pub(crate) fn read_headers(given: &Bound<'_, PyAny>) -> PyResult<Headers> {
    let mut headers = Headers::new();
    for item in given.call_method0("items")?.try_iter()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
        if let (Ok(name), Ok(value)) = (name.extract::<String>(), value.extract::<String>()) {
            headers.push(&name, &value);
        }
    }
    Ok(headers)
}

/// Joins the chunks of a stream: bytes as they are, objects as server-sent events.
fn chunks(list: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut joined = Vec::new();
    for item in list.try_iter()? {
        let item = item?;
        let raw = item.is_instance_of::<PyBytes>() || item.is_instance_of::<PyString>();
        let body = Body::of(&item)?;
        if raw {
            joined.extend_from_slice(body.bytes());
        } else {
            joined.extend_from_slice(b"data: ");
            joined.extend_from_slice(body.bytes());
            joined.extend_from_slice(b"\n\n");
        }
    }
    Ok(joined)
}

/// Returns Gemini's response with the names of the wire, if it has those of Google's Python SDK
/// (`finish_reason`), which `model_dump()` writes. Nothing else about it could be recognised, and
/// the finish value would be lost.
fn camel_case(text: &str) -> Option<Vec<u8>> {
    let gemini = text.contains("\"candidates\"") || text.contains("\"usage_metadata\"");
    let snake = text.contains("\"finish_reason\"") || text.contains("\"usage_metadata\"");
    if !gemini || !snake {
        return None;
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    // The words that were found above may be in a text; here they must be fields.
    value.get("candidates").or_else(|| value.get("usage_metadata"))?;
    rename(&mut value);
    serde_json::to_vec(&value).ok()
}

fn rename(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(rename),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                // Text of the model and of tools keeps its names.
                if name != "args" && name != "response" {
                    rename(&mut value);
                }
                // `model_dump` also writes fields that were never set, which would read as sent by
                // the server.
                if !value.is_null() {
                    fields.insert(camel(&name), value);
                }
            }
        }
        _ => {}
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut renamed = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        renamed.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        renamed.push_str(letters.as_str());
    }
    renamed
}
