//! An engine of HTTP answers, which a test chooses. Runs are driven by the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// A status and a body.
    Answer(u16, String),
    /// The connection is held without an answer.
    Silence,
    /// The connection is closed after the request was read.
    Close,
}

impl Reply {
    pub(crate) fn ok(body: &str) -> Reply {
        Reply::Answer(200, body.to_owned())
    }
}

/// A request that the engine got.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) body: String,
}

type Choose = dyn Fn(&Request) -> Option<Reply> + Send + Sync;

/// The engine. Its threads end with the process of the test.
#[derive(Clone)]
pub(crate) struct FakeEngine {
    pub(crate) address: SocketAddr,
    store: String,
    got: Arc<Mutex<Vec<Request>>>,
    choose: Arc<Mutex<Arc<Choose>>>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl FakeEngine {
    /// Starts an engine whose workers have the store with this id.
    pub(crate) fn start(store: &str) -> FakeEngine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let engine = FakeEngine {
            address: listener.local_addr().unwrap(),
            store: store.to_owned(),
            got: Arc::default(),
            choose: Arc::new(Mutex::new(Arc::new(|_: &Request| None))),
            held: Arc::default(),
        };
        let own = engine.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                thread::spawn(move || own.serve(stream));
            }
        });
        engine
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the answers; for `None` the engine does what a healthy one does.
    pub(crate) fn answers(
        &self,
        choose: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) {
        *self.choose.lock().unwrap() = Arc::new(choose);
    }

    /// Returns the requests whose path contains a text.
    pub(crate) fn got(&self, part: &str) -> Vec<Request> {
        let got = self.got.lock().unwrap();
        got.iter().filter(|request| request.path.contains(part)).cloned().collect()
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some(request) = read(&stream) {
            self.got.lock().unwrap().push(request.clone());
            let choose = Arc::clone(&self.choose.lock().unwrap());
            match choose(&request).unwrap_or_else(|| self.healthy(&request)) {
                Reply::Answer(status, body) => {
                    let head = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    if stream.write_all((head + &body).as_bytes()).is_err() {
                        return;
                    }
                }
                Reply::Silence => return self.held.lock().unwrap().push(stream),
                Reply::Close => return,
            }
        }
    }

    fn healthy(&self, request: &Request) -> Reply {
        match request.path.as_str() {
            "/EndstopStore/store/claim" => Reply::ok(&format!("{:?}", self.store)),
            path if path.ends_with("/send") => {
                Reply::Answer(202, r#"{"invocationId":"inv_1","status":"Accepted"}"#.to_owned())
            }
            _ => Reply::ok(""),
        }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { path, body: String::from_utf8(body).ok()? })
}
