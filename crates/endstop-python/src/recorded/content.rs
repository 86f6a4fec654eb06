//! The content of a part of recorded runs, from what Python programs hold: a path, bytes, or a file
//! object that is read in chunks.

use crate::exit::enter;
use endstop_trajectory::read::{Content, Source};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use std::io::{Cursor, Error, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are read from a file object at once.
const CHUNK: usize = 1 << 20;

/// How a report is pickled: the method that makes it again, and the counts it takes.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, (Vec<Bound<'py, PyBytes>>,));

/// A content, and the exception that its file object raised while it was read.
pub(crate) struct Given {
    pub(crate) content: Content,
    raised: Raised,
}

type Raised = Arc<Mutex<Option<PyErr>>>;

impl Given {
    /// Reads an argument. `folder` is the folder in which a path was found.
    pub(crate) fn of(
        given: &Bound<'_, PyAny>,
        file: &str,
        folder: Option<PathBuf>,
    ) -> PyResult<Given> {
        let raised = Raised::default();
        let stream = |input: Box<dyn Read + Send>| Content::Stream { input, file: file.to_owned() };
        let content = if let Ok(bytes) = given.cast::<PyBytes>() {
            stream(Box::new(Cursor::new(PyBackedBytes::from(bytes.clone()))))
        } else if given.is_instance_of::<PyByteArray>() || given.is_instance_of::<PyMemoryView>() {
            // Copied, because another thread may write to the buffer while it is read.
            let copy = given.py().get_type::<PyBytes>().call1((given,))?.cast_into::<PyBytes>()?;
            stream(Box::new(Cursor::new(PyBackedBytes::from(copy))))
        } else if given.hasattr("read")? {
            let object = FileObject {
                object: given.clone().unbind(),
                chunk: Cursor::new(Vec::new()),
                raised: Arc::clone(&raised),
            };
            stream(Box::new(object))
        } else if let Ok(path) = given.extract::<PathBuf>() {
            Content::File(match folder {
                Some(folder) => Source::found(path, folder),
                None => Source::file(path),
            })
        } else {
            let class = given.get_type().fully_qualified_name()?;
            return Err(PyTypeError::new_err(format!(
                "invalid part of type `{class}`: expected a path, bytes, or a file object"
            )));
        };
        Ok(Given { content, raised })
    }

    /// Reads the content with `read`, without the interpreter lock, and raises what its file object
    /// raised.
    pub(crate) fn read<T: Send>(
        self,
        py: Python<'_>,
        read: impl FnOnce(Content) -> T + Send,
    ) -> PyResult<T> {
        let Given { content, raised } = self;
        let _inside = enter(py);
        let done = py.detach(|| read(content));
        match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(raised) => Err(raised),
            None => Ok(done),
        }
    }
}

/// A file object, open for reading bytes.
struct FileObject {
    object: Py<PyAny>,
    chunk: Cursor<Vec<u8>>,
    raised: Raised,
}

impl FileObject {
    fn next(&self) -> PyResult<Vec<u8>> {
        // The reader runs without the lock, and takes it for one chunk at a time.
        Python::attach(|py| {
            let object = self.object.bind(py);
            let chunk = object.call_method1("read", (CHUNK,))?;
            // Object stores return their own types of bytes.
            if let Ok(bytes) = chunk.cast::<PyBytes>() {
                return Ok(bytes.as_bytes().to_vec());
            }
            if chunk.is_instance_of::<pyo3::types::PyString>() {
                let message = "the file object returns text; open the file with mode \"rb\"";
                return Err(PyTypeError::new_err(message));
            }
            let bytes = py.get_type::<PyBytes>().call1((PyMemoryView::from(&chunk)?,))?;
            Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
        })
    }
}

impl Read for FileObject {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 {
            match self.next() {
                Ok(chunk) => self.chunk = Cursor::new(chunk),
                Err(raised) => {
                    // The reader needs an I/O error to end; `Given::read` then raises the exception
                    // itself.
                    let problem = Error::other("the file object raised an exception");
                    *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
                    return Err(problem);
                }
            }
        }
        self.chunk.read(buffer)
    }
}
