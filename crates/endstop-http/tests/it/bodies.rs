//! Bodies of requests and of responses.

use crate::server::{FINE, Server, get, listen, text};
use bytes::Bytes;
use endstop_http::{BodyError, Client, Decoded, Full};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response};
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// A body of unknown length.
struct Parts(Vec<&'static str>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(|part| Ok(Frame::data(Bytes::from(part)))))
    }
}

#[tokio::test]
async fn any_body_is_sent() {
    let server = Server::start(FINE).await;
    let request = Request::post(server.url("/")).body(Full::new(Bytes::from("whole"))).unwrap();
    text(client().send(request).await.unwrap()).await;
    let request = Request::post(server.url("/")).body(Parts(vec!["rts", "pa"])).unwrap();
    text(client().send(request).await.unwrap()).await;
    let requests = server.requests();
    assert!(requests[0].contains("content-length: 5\r\n") && requests[0].ends_with("\r\nwhole"));
    assert!(requests[1].ends_with("\r\n2\r\npa\r\n3\r\nrts\r\n0\r\n\r\n"), "{}", requests[1]);
}

fn pack(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A response with this packed body, in chunks of `size` bytes.
fn chunked(packed: &[u8], size: usize) -> Vec<u8> {
    let mut head = String::from("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n");
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    let mut out = head.into_bytes();
    for chunk in packed.chunks(size) {
        let mut length = String::new();
        let _ = write!(length, "{:x}\r\n", chunk.len());
        out.extend_from_slice(length.as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

async fn response(answer: Vec<u8>) -> Response<Decoded> {
    let server = Server::start(answer).await;
    Decoded::new(client().send(get(&server.url("/"))).await.unwrap())
}

async fn next(body: &mut Decoded) -> Option<Result<Bytes, BodyError>> {
    poll_fn(|cx| body.poll_data(cx)).await
}

#[tokio::test]
async fn packed_body_is_unpacked_at_any_split() {
    let mut data = String::new();
    for number in 0..3000 {
        let _ = writeln!(data, "line {number}");
    }
    // Two members, as a server writes that compresses each part by itself.
    let mut packed = pack(&data.as_bytes()[..9000]);
    packed.extend(pack(&data.as_bytes()[9000..]));
    for size in [1, 2, 7, 100, 4096, packed.len()] {
        let response = response(chunked(&packed, size)).await;
        assert!(!response.headers().contains_key("content-encoding"));
        let (mut body, mut all) = (response.into_body(), Vec::new());
        while let Some(chunk) = next(&mut body).await {
            all.extend_from_slice(&chunk.unwrap());
        }
        assert!(all == data.as_bytes(), "chunks of {size}");
    }
}

#[tokio::test]
async fn huge_body_arrives_in_small_chunks() {
    let mut body = response(chunked(&pack(&vec![b'x'; 20 << 20]), 60_000)).await.into_body();
    let mut length = 0;
    while let Some(chunk) = next(&mut body).await {
        let chunk = chunk.unwrap();
        assert!(chunk.len() <= 16 << 10);
        length += chunk.len();
    }
    assert_eq!(length, 20 << 20);
}

#[tokio::test]
async fn damaged_body_is_an_error() {
    let packed = pack(&[7; 5000]);
    let mut other = packed.clone();
    let last = other.len() - 6;
    other[last] ^= 1;
    for damaged in [&packed[..packed.len() - 3], &packed[..5], b"not packed", &other] {
        let mut body = response(chunked(damaged, 10)).await.into_body();
        let error = loop {
            match next(&mut body).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("no error: {damaged:?}"),
            }
        };
        assert!(matches!(error, BodyError::Gzip(_)), "{error:?}");
    }
}

#[tokio::test]
async fn other_bodies_arrive_as_they_are() {
    let mut body = response(FINE.into()).await.into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "fine");
    assert!(next(&mut body).await.is_none());
    // An empty body has no gzip header.
    let mut body = response(chunked(&[], 1)).await.into_body();
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn broken_connection_is_an_error() {
    // The length is longer than the body, and the server hangs up after it.
    let port = listen(async |_, mut stream| {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let begun = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfine";
        stream.write_all(begun).await.unwrap();
    })
    .await;
    let request = get(&format!("http://127.0.0.1:{port}/"));
    let mut body = Decoded::new(client().send(request).await.unwrap()).into_body();
    let mut all = Vec::new();
    let error = loop {
        match next(&mut body).await {
            Some(Ok(chunk)) => all.extend_from_slice(&chunk),
            Some(Err(error)) => break error,
            None => panic!("no error after {all:?}"),
        }
    };
    assert!(matches!(error, BodyError::Connection(_)) && all == b"fine", "{error:?}");
}
