//! The body of a response from what Python programs hold: bytes, text, a dict, an object of an SDK,
//! the chunks of a stream, or the response object of an HTTP client.

use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use endstop_guest::response::Chunks;
use endstop_wire::Headers;
use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple, PyType};
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
    /// Reads a response object. A stream is read to its end.
    pub(crate) fn of(response: &Bound<'py, PyAny>) -> PyResult<Body<'py>> {
        if let Some(raw) = raw(response)? {
            return Ok(Body::new(raw));
        }
        // From here on code of an SDK runs, which may give up the interpreter lock.
        let _inside = enter(response.py());
        if response.is_instance_of::<PyDict>() {
            return match stream_of(response)? {
                Some(stream) => Body::of(&stream),
                None => Body::of_json(&json::dumps(response)?),
            };
        }
        if response.is_instance_of::<PyList>() || response.is_instance_of::<PyTuple>() {
            return chunks(response);
        }
        refuse(response)?;
        let readers = [of_sdk, of_http, of_helper, of_open];
        for reader in readers {
            if let Some(body) = reader(response)? {
                return Ok(body);
            }
        }
        if response.hasattr("__iter__")? {
            return chunks(response);
        }
        Err(unreadable(response)?)
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

/// Returns bytes and text as they are.
fn raw<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Content<'py>>> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Some(Content::Bytes(bytes.clone())));
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Some(Content::Text(PyBackedStr::try_from(text.clone())?)));
    }
    if given.is_instance_of::<PyByteArray>() || given.is_instance_of::<PyMemoryView>() {
        // Copied, because another thread may write to the buffer while it is decoded.
        let copy = given.py().get_type::<PyBytes>().call1((given,))?;
        return Ok(Some(Content::Bytes(copy.cast_into::<PyBytes>()?)));
    }
    Ok(None)
}

/// Raises for objects that a program passes by mistake, and that could be read as something else.
fn refuse(given: &Bound<'_, PyAny>) -> PyResult<()> {
    json::refuse_awaitable(given)?;
    let fix = if given.is_instance_of::<PyBaseException>() {
        "pass the exception of a model call to run.failed(…)"
    } else if given.hasattr("__aiter__")? && !given.hasattr("__iter__")? {
        "a stream of asyncio is read by its program: pass [chunk async for chunk in stream]"
    } else if given.is_instance_of::<PyType>() {
        "pass an object, not its class"
    } else {
        return Ok(());
    };
    Err(PyTypeError::new_err(format!("invalid response of type `{}`: {fix}", class_of(given)?)))
}

fn class_of(given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.get_type().fully_qualified_name().map(|name| name.to_string())
}

fn unreadable(given: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let class = class_of(given)?;
    // The object that an SDK returns for a stream, before its `with` block.
    if given.hasattr("__enter__")? || given.hasattr("__aenter__")? {
        return Ok(PyTypeError::new_err(format!(
            "invalid response of type `{class}`: enter it, and pass what the block gets: with … as stream"
        )));
    }
    Ok(PyTypeError::new_err(format!(
        "invalid response of type `{class}`: expected bytes, str, dict, an object of an SDK, a stream or \
         the list of its chunks, or an HTTP response"
    )))
}

/// Returns the stream in a response of boto3, whose other fields are facts about it.
fn stream_of<'py>(response: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    for name in ["stream", "body"] {
        let Ok(value) = response.get_item(name) else { continue };
        let is_data = raw(&value)?.is_some()
            || value.is_instance_of::<PyDict>()
            || value.is_instance_of::<PyList>();
        if !is_data && (value.hasattr("read")? || value.hasattr("__iter__")?) {
            return Ok(Some(value));
        }
    }
    Ok(None)
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

/// Reads a response of `httpx`, `requests` or a similar client.
fn of_http<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Body<'py>>> {
    let content = match object.getattr_opt("content") {
        Ok(None) => return Ok(None),
        Ok(Some(content)) => content,
        // httpx, with a response that was opened as a stream.
        Err(problem) if is_named(object.py(), &problem, "ResponseNotRead") => {
            match object.call_method0("read") {
                Ok(content) => content,
                Err(problem) if is_named(object.py(), &problem, "RuntimeError") => {
                    let message =
                        "invalid response: its body is not read; await response.aread() first";
                    return Err(PyTypeError::new_err(message));
                }
                Err(problem) => return Err(problem),
            }
        }
        Err(problem) => return Err(problem),
    };
    // `content` of another type is not a body: messages of Anthropic's SDK have a list of blocks.
    let Ok(content) = content.cast_into::<PyBytes>() else { return Ok(None) };
    sent(object, Content::Bytes(content), "status_code").map(Some)
}

fn is_named(py: Python<'_>, problem: &PyErr, name: &str) -> bool {
    problem.get_type(py).name().is_ok_and(|class| class == name)
}

/// A body with the status and the headers of the response that has it.
fn sent<'py>(
    response: &Bound<'py, PyAny>,
    content: Content<'py>,
    status: &str,
) -> PyResult<Body<'py>> {
    let mut body = Body::new(content);
    if let Some(status) = response.getattr_opt(status)? {
        body.status = status.extract()?;
    }
    if let Some(headers) = response.getattr_opt("headers")?
        && headers.hasattr("items")?
    {
        body.headers = read_headers(&headers)?;
    }
    Ok(body)
}

/// Reads a stream of an SDK that puts the response together itself, and that has events of its own among
/// those of the provider.
fn of_helper<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Body<'py>>> {
    if let Some(message) = object.getattr_opt("get_final_message")? {
        return Body::of(&message.call0()?).map(Some);
    }
    // Of its class, because the value cannot be had before the first event.
    let snapshot = "current_completion_snapshot";
    if object.get_type().hasattr(snapshot)? {
        for event in object.try_iter()? {
            event?;
        }
        return Body::of(&object.getattr(snapshot)?).map(Some);
    }
    Ok(None)
}

/// Reads an object that is open for reading: a response of `urllib`, a body of boto3, a file.
fn of_open<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Body<'py>>> {
    let Some(read) = object.getattr_opt("read")? else { return Ok(None) };
    // A client that has read the body already, such as urllib3.
    let loaded = object.getattr_opt("data")?.filter(PyAnyMethods::is_instance_of::<PyBytes>);
    let content = loaded.map_or_else(|| read.call0(), Ok)?;
    if json::is_awaitable(&content)? {
        // Closed, because a warning about it would not name this call.
        let _ = content.call_method0("close");
        let class = class_of(object)?;
        return Err(PyTypeError::new_err(format!(
            "invalid response of type `{class}`: pass its body: await response.read()"
        )));
    }
    let Some(content) = raw(&content)? else { return Ok(None) };
    sent(object, content, "status").map(Some)
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
fn chunks<'py>(stream: &Bound<'py, PyAny>) -> PyResult<Body<'py>> {
    let mut joined = Vec::new();
    let mut seen = Chunks::default();
    let mut check = |chunk: &[u8]| {
        let checked = seen.add(chunk);
        checked.map_err(|problem| error(stream.py(), Exception::Format, problem.to_string()))
    };
    for item in stream.try_iter()? {
        let item = item?;
        let body = match raw(&item)? {
            Some(content) => {
                let body = Body::new(content);
                check(body.bytes())?;
                joined.extend_from_slice(body.bytes());
                continue;
            }
            None => event(&item)?,
        };
        check(body.bytes())?;
        joined.extend_from_slice(b"data: ");
        joined.extend_from_slice(body.bytes());
        joined.extend_from_slice(b"\n\n");
    }
    Ok(Body::new(Content::Owned(joined)))
}

/// Reads an event of a stream: a dict, or an object of an SDK.
fn event<'py>(item: &Bound<'py, PyAny>) -> PyResult<Body<'py>> {
    if item.is_instance_of::<PyDict>() {
        // A chunk of boto3's InvokeModel has the provider's event as bytes.
        let bytes = item.get_item("chunk").and_then(|chunk| chunk.get_item("bytes"));
        if let Ok(Ok(bytes)) = bytes.map(Bound::cast_into::<PyBytes>) {
            return Ok(Body::new(Content::Bytes(bytes)));
        }
        return Body::of_json(&json::dumps(item)?);
    }
    refuse(item)?;
    of_sdk(item)?.map_or_else(
        || {
            Err(PyTypeError::new_err(format!(
                "invalid chunk of type `{}`: expected bytes, str, dict, or an object of an SDK",
                class_of(item)?
            )))
        },
        Ok,
    )
}

/// Returns Gemini's response with the names of the wire, if it has those of Google's Python SDK
/// (`finish_reason`), which `model_dump()` writes. Nothing else about it could be recognised, and
/// the finish value would be lost.
fn camel_case(text: &str) -> Option<Vec<u8>> {
    // First in the text, because that costs little and most have none of these words.
    if !["\"finish_reason\"", "\"usage_metadata\"", "\"prompt_feedback\""]
        .iter()
        .any(|field| text.contains(field))
    {
        return None;
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    // The words that were found above may be in a text; here they must be fields. Other objects have
    // `usage_metadata` as well, with other counts.
    let counts = &value["usage_metadata"];
    let is_gemini = value["candidates"].is_array()
        || value["prompt_feedback"].is_object()
        || ["prompt_token_count", "total_token_count"].iter().any(|n| !counts[n].is_null());
    if !is_gemini {
        return None;
    }
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
