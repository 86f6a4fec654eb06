//! Images and documents: types, sizes and tokens.

use endstop_core::{
    Attachment, Document, Image, ImageTokens, MediaError, Message, MessageId, Part, Role,
    ToolResult, ToolStatus,
};
use serde_json::json;

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend(b"\x08\x06\0\0\0");
    file
}

/// A JPEG whose frame header follows this many bytes of metadata.
fn jpeg(width: u16, height: u16, metadata: usize) -> Vec<u8> {
    let mut file = b"\xff\xd8".to_vec();
    let mut left = metadata;
    while left > 0 {
        let length = left.min(60_000);
        file.extend(b"\xff\xe1");
        file.extend((length as u16 + 2).to_be_bytes());
        // Bytes that look like another frame header.
        file.extend(b"\xff\xc0\x00\x11".iter().cycle().take(length));
        left -= length;
    }
    // A table, whose marker is between those of frames, and fill bytes.
    file.extend(b"\xff\xc4\x00\x04ab\xff\xff\xff\xc2\x00\x11\x08");
    file.extend(height.to_be_bytes());
    file.extend(width.to_be_bytes());
    file
}

fn webp(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [b"RIFF\0\0\0\0WEBP".as_slice(), kind, b"\0\0\0\0", body].concat()
}

#[test]
fn size_is_read_from_header() {
    let size = |bytes: &[u8], kind| Image::from_bytes(bytes, kind).unwrap().size();
    assert_eq!(size(&png(640, 480), "image/png"), Some((640, 480)));
    assert_eq!(size(&png(1 << 31, 1), "image/png"), Some((1 << 31, 1)));
    assert_eq!(size(b"GIF87a\x80\x02\xe0\x01\0", "image/gif"), Some((640, 480)));
    for metadata in [0, 100, 70_000, 300_000] {
        assert_eq!(size(&jpeg(4000, 3000, metadata), "image/jpeg"), Some((4000, 3000)));
        assert_eq!(size(&jpeg(4000, 3000, metadata), "image/jpg"), Some((4000, 3000)));
    }
    let extended = webp(b"VP8X", b"\0\0\0\0\x7f\x02\0\xdf\x01\0");
    assert_eq!(size(&extended, "image/webp"), Some((640, 480)));
    let packed: u32 = 639 | 479 << 14;
    let lossless = [b"\x2f".as_slice(), &packed.to_le_bytes()].concat();
    assert_eq!(size(&webp(b"VP8L", &lossless), "image/webp"), Some((640, 480)));
    let lossy = webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a\x80\x42\xe0\x01");
    assert_eq!(size(&lossy, "image/webp"), Some((640, 480)));
    assert_eq!(Image::Url("https://example.com/a.png".into()).size(), None);
}

#[test]
fn damaged_header_has_no_size() {
    for (mut file, kind) in [
        (png(640, 480), "image/png"),
        (jpeg(4000, 3000, 50), "image/jpeg"),
        (b"GIF89a\x80\x02\xe0\x01".to_vec(), "image/gif"),
        (webp(b"VP8X", b"\0\0\0\0\x7f\x02\0\xdf\x01\0"), "image/webp"),
    ] {
        let whole = Image::from_bytes(&file, kind).unwrap();
        assert!(whole.size().is_some(), "{kind}");
        // Any cut that leaves the type is an image without a size, never a panic.
        while file.len() > 13 {
            file.pop();
            if let Ok(image) = Image::from_bytes(&file, kind) {
                let _ = image.size();
            }
        }
    }
    assert_eq!(Image::from_bytes(&png(0, 5), "image/png").unwrap().size(), None);
    let short = Image::from_bytes(&png(1, 1)[..20], "image/png").unwrap();
    assert_eq!(short.size(), None);
}

#[test]
fn wrong_bytes_are_refused() {
    let found = |bytes: &[u8], kind: &str| Attachment::from_bytes(bytes, kind).unwrap_err();
    let error = found(b"<html>", "image/png").to_string();
    assert_eq!(error, "invalid image: the data is not image/png");
    assert_eq!(
        found(&png(1, 1), "image/webp").to_string(),
        "invalid image: the data is image/png, not image/webp"
    );
    assert_eq!(
        found(&png(1, 1), "application/pdf").to_string(),
        "invalid document: the data is image/png, not application/pdf"
    );
    assert_eq!(found(b"%PDF-1.7", "text/plain"), MediaError::UnknownType("text/plain".into()));
    assert!(found(b"", "image/gif").to_string().contains("not image/gif"));
    assert_eq!(Attachment::from_base64("%%%", "image/gif"), Err(MediaError::NotBase64));
    let by_hand = Image::Base64 { media_type: "image/png".into(), data: "AA==".into() };
    assert!(by_hand.check().is_err());
    assert!(Document::from_bytes(b"%PDF-1.7\n", "application/pdf").unwrap().check().is_ok());
}

/// Examples of the providers' documentation.
#[test]
fn published_formulas_give_published_numbers() {
    let tiles = |base, tile, size| ImageTokens::Tiles { base, tile }.of_size(Some(size));
    assert_eq!(tiles(85, 170, (1024, 1024)), 765);
    assert_eq!(tiles(85, 170, (2048, 4096)), 1105);
    assert_eq!(tiles(85, 170, (4096, 8192)), 1105);
    // The most expensive shapes: eight tiles.
    assert_eq!(tiles(2833, 5667, (2048, 768)), 2833 + 8 * 5667);
    assert_eq!(tiles(2833, 5667, (8000, 2400)), 48_169);
    let patches = |side, per_thousand, most, size| {
        ImageTokens::Patches { side, per_thousand, most }.of_size(Some(size))
    };
    assert_eq!(patches(32, 1000, 1536, (1024, 1024)), 1024);
    // Scaled down to 1452 patches by the provider: the bound is the cap.
    assert_eq!(patches(32, 1000, 1536, (1800, 2400)), 1536);
    assert_eq!(patches(28, 1000, 1568, (1000, 1000)), 1296);
    assert_eq!(patches(28, 1000, 4784, (2576, 1449)), 4784);
    assert_eq!(patches(28, 1000, 4784, (8000, 8000)), 4784);
    let crops = |size| ImageTokens::Crops { tokens: 258 }.of_size(Some(size));
    assert_eq!(crops((384, 384)), 258);
    assert_eq!(crops((960, 540)), 6 * 258);
    assert_eq!(crops((768, 768)), 4 * 258);
}

#[test]
fn unknown_model_gets_largest_bound() {
    for width in [1, 20, 300, 512, 513, 768, 1024, 2048, 5000, 20_000] {
        for height in [1, 64, 385, 1000, 2049, 9999] {
            let of = |rule: ImageTokens| rule.of_size(Some((width, height)));
            let unknown = of(ImageTokens::Unknown);
            for rule in [
                ImageTokens::Open,
                ImageTokens::Crops { tokens: 258 },
                ImageTokens::Tiles { base: 2833, tile: 5667 },
                ImageTokens::Patches { side: 28, per_thousand: 1046, most: 4784 },
                ImageTokens::Patches { side: 32, per_thousand: 2460, most: 3779 },
                ImageTokens::Patches { side: 32, per_thousand: 1000, most: 10_000 },
            ] {
                assert!(of(rule) <= unknown, "{rule:?} {width}x{height}: {}", of(rule));
            }
        }
    }
    let url = Image::Url("https://example.com/a.png".into());
    assert!(ImageTokens::Unknown.of_image(&url) >= 48_169);
}

#[test]
fn message_is_bounded_by_rule() {
    let image = Image::from_bytes(&png(1024, 1024), "image/png").unwrap();
    let part = Part::Image(image.clone());
    let rule = ImageTokens::Tiles { base: 85, tile: 170 };
    let message = Message::new(MessageId(1), Role::User, vec![part]);
    assert_eq!(message.token_bound(rule), 16 + 765);
    assert_eq!(message.token_bound(ImageTokens::default()), 16 + 4096);
    let result = ToolResult {
        call_id: "c".into(),
        name: "look".into(),
        status: ToolStatus::Ok,
        content: "seen".into(),
        attachments: vec![image.clone().into(), image.into()],
        started: true,
        pinned: false,
    };
    let message = Message::new(MessageId(1), Role::Tool, vec![Part::ToolResult(result)]);
    assert_eq!(message.token_bound(rule), 16 + 9 + 2 * 765);
    assert!(message.has_attachments());
}

#[test]
fn document_is_estimated_by_bytes_and_pages() {
    let rule = ImageTokens::Patches { side: 28, per_thousand: 1000, most: 1568 };
    let pdf = |body: &[u8]| {
        Document::from_bytes(&[b"%PDF-1.7\n", body].concat(), "application/pdf").unwrap()
    };
    let pages =
        pdf(b"<</Type /Pages /Kids []>><</Type/Page>><</Type   /Page /Parent 1 0 R>>trailer");
    assert_eq!(rule.of_document(&pages), 2 * (1568 + 3000));
    let compressed = pdf(&[b'x'; 50_000]);
    assert!(rule.of_document(&compressed) >= 50_000);
    // Of three pages in an object stream, only their contents are visible.
    let content = b"4 0 obj<</Length 4>>stream\nabcd\nendstream endobj ".repeat(3);
    let packed = [b"1 0 obj<</Type/ObjStm/N 3>>stream\nabcd\nendstream endobj ", &content[..]];
    for trailer in ["", "trailer"] {
        let packed = pdf(&[&packed.concat(), trailer.as_bytes()].concat());
        assert_eq!(rule.of_document(&packed), 4 * (1568 + 3000), "{trailer}");
    }
    let escaped = pdf(&[b"1 0 obj<</Type/Obj#53tm>>stream\nendstream ", &content[..]].concat());
    assert_eq!(rule.of_document(&escaped), 4 * (1568 + 3000));
    // Without object streams all pages are visible, and other streams are fonts and images.
    let plain = [&content[..], b"<</Type/Page>> trailer"].concat();
    assert_eq!(rule.of_document(&pdf(&plain)), 1568 + 3000);
}

#[test]
fn json_is_stable_and_reads_old_results() {
    let old = json!({"call_id": "c", "name": "n", "status": "ok", "content": "x", "started": true});
    let result: ToolResult = serde_json::from_value(old.clone()).unwrap();
    assert!(result.attachments.is_empty());
    assert_eq!(serde_json::to_value(&result).unwrap(), old);
    let image = Image::from_bytes(&png(1, 1), "image/png").unwrap();
    let document = Document::from_bytes(b"%PDF-1.7", "application/pdf").unwrap().named("a.pdf");
    let with = ToolResult { attachments: vec![image.into(), document.clone().into()], ..result };
    let value = serde_json::to_value(&with).unwrap();
    assert_eq!(value["attachments"][0]["type"], "image");
    assert_eq!(value["attachments"][0]["base64"]["media_type"], "image/png");
    assert_eq!(value["attachments"][1]["name"], "a.pdf");
    assert_eq!(serde_json::from_value::<ToolResult>(value).unwrap(), with);
    let part = Part::Document(document);
    let value = serde_json::to_value(&part).unwrap();
    assert_eq!(value["type"], "document");
    assert_eq!(serde_json::from_value::<Part>(value).unwrap(), part);
}

#[test]
fn forged_sizes_do_not_overflow() {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend([0xff; 8]);
    let image = Image::from_bytes(&png, "image/png").unwrap();
    assert_eq!(image.size(), Some((u32::MAX, u32::MAX)));
    let rules = [
        ImageTokens::Flat(7),
        ImageTokens::Tiles { base: 85, tile: u64::MAX },
        ImageTokens::Patches { side: 1, per_thousand: u64::MAX, most: 1568 },
        ImageTokens::Crops { tokens: 258 },
        ImageTokens::Open,
        ImageTokens::Unknown,
    ];
    for rule in rules {
        // A damaged header must not make an image cheaper than one of unknown size.
        let flat = matches!(rule, ImageTokens::Flat(_));
        assert!(flat || rule.of_image(&image) >= rule.of_size(Some((1024, 1024))), "{rule:?}");
        // Every prefix of the header is a file that may arrive.
        for end in 0..png.len() {
            if let Ok(image) = Image::from_bytes(&png[..end], "image/png") {
                rule.of_image(&image);
            }
        }
    }
}
