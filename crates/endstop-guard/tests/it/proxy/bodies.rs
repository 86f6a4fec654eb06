//! Copies of bodies: limits, content encodings, and compressed data that are hostile.

use super::framing::{OK, answering};
use super::support::{Conn, Event, GET, Gate, Seen, post, run, upstream};
use endstop_guard::proxy::{End, ProxyOptions, RequestBody, Unreadable};
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write;

const TEXT: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"hello hello hello"}]}"#;

fn compressed(encoding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match encoding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).expect("gzip");
            encoder.finish().expect("gzip")
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).expect("zlib");
            encoder.finish().expect("zlib")
        }
        "raw deflate" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(text).expect("deflate");
            encoder.finish().expect("deflate")
        }
        "zstd" => zstd::bulk::compress(text, 1).expect("compressed"),
        _ => text.to_vec(),
    }
}

/// Sends a body with this encoding and returns its copy, after a check that it passed unchanged.
async fn copy_of(encoding: &str, body: &[u8], options: ProxyOptions) -> RequestBody {
    let (address, mut requests) = answering(OK).await;
    let (gate, mut seen) = Gate::new(address);
    let proxy = gate.reading().start_with(options).await;
    let mut client = proxy.client().await;
    let head = format!(
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send([head.as_bytes(), body].concat()).await;
    assert_eq!(client.message().await.1.expect("an answer"), b"ok");
    assert!(requests.recv().await.expect("a request").1 == body, "the body changed");
    seen.request().await.1
}

#[test]
fn compressed_request_is_decoded_for_the_decision() {
    run(async {
        for encoding in ["gzip", "deflate", "raw deflate", "zstd", "identity"] {
            let body = compressed(encoding, TEXT);
            let name = encoding.trim_start_matches("raw ");
            match copy_of(name, &body, ProxyOptions::default()).await {
                RequestBody::Whole { raw, decoded } => {
                    assert_eq!((&raw[..], &decoded[..]), (&body[..], TEXT), "{encoding}");
                }
                other => panic!("{encoding}: {other:?}"),
            }
        }
    });
}

#[test]
fn large_zstd_request_is_decoded() {
    run(async {
        // More than a window and many blocks.
        let text: Vec<u8> = (0..12_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let body = compressed("zstd", &text);
        match copy_of("zstd", &body, ProxyOptions::default()).await {
            RequestBody::Whole { decoded, .. } => assert!(decoded == text),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn unreadable_request_passes_and_is_reported() {
    run(async {
        let zeros = vec![0; 8 << 20];
        let mut wide = compressed("zstd", TEXT);
        // A window of gigabytes.
        wide.splice(4.., [0x00, 0xa8]);
        let small = ProxyOptions { largest_body: 1 << 20, ..ProxyOptions::default() };
        for (encoding, body, expected) in [
            ("br", b"\x0b\x02\x80abc\x03".to_vec(), Unreadable::Encoding("br".to_owned())),
            ("gzip, zstd", TEXT.to_vec(), Unreadable::Encoding("gzip, zstd".to_owned())),
            ("gzip", TEXT.to_vec(), Unreadable::Invalid),
            ("deflate", b"\x78\x9c\xff\xff\xff\xff".to_vec(), Unreadable::Invalid),
            ("zstd", TEXT.to_vec(), Unreadable::Invalid),
            ("zstd", wide, Unreadable::TooLarge),
            ("gzip", compressed("gzip", &zeros), Unreadable::TooLarge),
            ("deflate", compressed("deflate", &zeros), Unreadable::TooLarge),
            ("zstd", compressed("zstd", &zeros), Unreadable::TooLarge),
        ] {
            match copy_of(encoding, &body, small.clone()).await {
                RequestBody::Unreadable { raw, reason } => {
                    assert_eq!((&raw[..], reason), (&body[..], expected), "{encoding}");
                }
                other => panic!("{encoding}: {other:?}"),
            }
        }
    });
}

/// Returns a zstd stream: a block with one byte, and one whose sequences each repeat that byte
/// 65,539 times.
fn repeating_block(sequences: u8) -> Vec<u8> {
    // Magic number, descriptor, a window of 8 MiB.
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
    let block = |last: u32, kind: u32, size: usize| {
        (size as u32 * 8 + kind * 2 + last).to_le_bytes()[..3].to_vec()
    };
    stream.extend(block(0, 0, 1));
    stream.push(b'a');
    // No literals; one code each for the lengths of literals (0), offsets (2) and matches (52).
    let mut content = vec![0x00, sequences, 0x54, 0, 2, 52];
    // Each sequence has 2 bits for the offset 1 and 16 for the length of the match, all zero. The
    // stream is read from its end, which a bit marks.
    let bits = usize::from(sequences) * 18;
    let mut codes = vec![0; bits / 8 + 1];
    codes[bits / 8] = 1 << (bits % 8);
    content.extend(codes);
    stream.extend(block(1, 2, content.len()));
    stream.extend(content);
    stream
}

#[test]
fn huge_block_of_zstd_is_invalid() {
    run(async {
        match copy_of("zstd", &repeating_block(1), ProxyOptions::default()).await {
            RequestBody::Whole { decoded, .. } => assert!(decoded == vec![b'a'; 65_540]),
            other => panic!("{other:?}"),
        }
        // 8 MB from 300 bytes; a block has at most 128 KiB.
        match copy_of("zstd", &repeating_block(127), ProxyOptions::default()).await {
            RequestBody::Unreadable { reason, .. } => assert_eq!(reason, Unreadable::Invalid),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn mutated_compressed_bodies_never_panic() {
    run(async {
        let (address, _requests) = answering(OK).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let mut client = proxy.client().await;
        let mut state = 1_u64;
        for encoding in ["gzip", "deflate", "zstd"] {
            let whole = compressed(encoding, &TEXT.repeat(20));
            for _ in 0..200 {
                let mut body = whole.clone();
                for _ in 0..3 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = (state >> 33) as usize % body.len();
                    body[at] = (state >> 24) as u8;
                }
                let head = format!(
                    "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\n\
                     Content-Length: {}\r\n\r\n",
                    body.len()
                );
                client.send([head.as_bytes(), &body].concat()).await;
                assert_eq!(client.message().await.1.expect("an answer"), b"ok");
                seen.request().await;
            }
        }
    });
}

/// Sends a compressed response and returns its events.
async fn response(encoding: &str, body: Vec<u8>) -> Seen {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (address, _requests) = answering([head.into_bytes(), body.clone()].concat()).await;
    let (gate, seen) = Gate::new(address);
    let proxy = gate.start().await;
    let mut client = proxy.client().await;
    client.send(GET).await;
    assert!(client.message().await.1.expect("a body") == body, "the body changed");
    seen
}

#[test]
fn compressed_response_is_decoded_for_the_observer() {
    run(async {
        for encoding in ["gzip", "deflate", "zstd"] {
            let mut seen = response(encoding, compressed(encoding, TEXT)).await;
            assert_eq!(seen.end().await, End::Complete);
            assert_eq!(seen.copy(), TEXT, "{encoding}");
        }
    });
}

#[test]
fn unreadable_response_passes_and_is_reported() {
    run(async {
        for (encoding, reason) in
            [("br", Unreadable::Encoding("br".to_owned())), ("gzip", Unreadable::Invalid)]
        {
            let mut seen = response(encoding, TEXT.to_vec()).await;
            let mut reported = Vec::new();
            loop {
                match seen.events.recv().await.expect("an event") {
                    Event::Unreadable(reason) => reported.push(reason),
                    Event::End(end) => break assert_eq!(end, End::Complete),
                    _ => {}
                }
            }
            assert_eq!(reported, [reason]);
        }
    });
}

/// Starts an upstream that counts the bytes of each body.
async fn counting() -> std::net::SocketAddr {
    upstream(|mut conn: Conn| async move {
        while let Ok(head) = conn.until(b"\r\n\r\n").await {
            let head = String::from_utf8(head).expect("text");
            let mut count = 0;
            if let Some(length) = super::support::header(&head, "content-length") {
                let length: usize = length.parse().expect("a length");
                while count < length {
                    count += conn.exact((length - count).min(1 << 16)).await.expect("a body").len();
                }
            } else {
                loop {
                    match conn.chunk().await.expect("a chunk").len() {
                        0 => break,
                        length => count += length,
                    }
                }
                conn.until(b"\r\n").await.expect("an end");
            }
            let count = count.to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", count.len());
            conn.send(head + &count).await;
        }
    })
    .await
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn huge_body_passes_without_being_stored() {
    // In a process of its own, because the memory of other tests would count.
    const ALONE: &str = "ENDSTOP_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().expect("this program");
        let status = std::process::Command::new(program)
            .args(["--exact", "proxy::bodies::huge_body_passes_without_being_stored"])
            .env(ALONE, "1")
            .status();
        assert!(status.expect("a process").success());
        return;
    }
    run(async {
        const SIZE: usize = 100 << 20;
        let address = counting().await;
        let (gate, mut seen) = Gate::new(address);
        let options = ProxyOptions { largest_body: 4 << 20, ..ProxyOptions::default() };
        let proxy = gate.reading().start_with(options).await;
        let block = vec![b'x'; 1 << 20];
        let before = peak_memory();
        for chunked in [false, true] {
            let mut client = proxy.client().await;
            let framing = if chunked {
                "Transfer-Encoding: chunked".to_owned()
            } else {
                format!("Content-Length: {SIZE}")
            };
            client.send(format!("POST /v1 HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n")).await;
            for _ in 0..100 {
                if chunked {
                    client.send("100000\r\n").await;
                }
                client.send(&block).await;
                if chunked {
                    client.send("\r\n").await;
                }
            }
            if chunked {
                client.send("0\r\n\r\n").await;
            }
            let (_, count) = client.message().await;
            assert_eq!(count.expect("a body"), SIZE.to_string().as_bytes());
            let announced = (!chunked).then_some(SIZE as u64);
            assert_eq!(seen.request().await.1, RequestBody::TooLarge { announced });
        }
        let grown = peak_memory() - before;
        assert!(grown < 40 << 10, "the peak grew by {grown} kB");
    });
}

#[test]
fn bodies_beyond_the_memory_pass_unread() {
    run(async {
        let address = counting().await;
        let (gate, mut seen) = Gate::new(address);
        let options = ProxyOptions { body_memory: 1 << 16, ..ProxyOptions::default() };
        let proxy = gate.reading().start_with(options).await;
        let mut client = proxy.client().await;
        client.send(post("/v1", &vec![b'x'; 1 << 17])).await;
        assert_eq!(client.message().await.1.expect("a body"), b"131072");
        assert_eq!(seen.request().await.1, RequestBody::TooLarge { announced: Some(1 << 17) });
        // The memory was returned.
        let mut client = proxy.client().await;
        client.send(post("/v1", &vec![b'x'; 1 << 15])).await;
        assert_eq!(client.message().await.1.expect("a body"), b"32768");
        assert!(matches!(seen.request().await.1, RequestBody::Whole { .. }));
    });
}

#[test]
fn slow_body_is_refused_after_its_time() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, mut seen) = Gate::new(address);
        let time = std::time::Duration::from_millis(20);
        let options = ProxyOptions { body_time: time, ..ProxyOptions::default() };
        let proxy = gate.reading().start_with(options).await;
        let mut client = proxy.client().await;
        client.send("POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await;
        assert!(client.head().await.starts_with("HTTP/1.1 408 "));
        assert!(matches!(seen.events.recv().await, Some(Event::Notice(_))));
        assert!(requests.try_recv().is_err());
    });
}
