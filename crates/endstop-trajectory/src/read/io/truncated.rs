//! Recognises a truncated JSON text, and completes it so that it can be parsed.

use endstop_wire::stream::json_end::JsonEnd;

/// Returns `true` if `bytes` are a truncated JSON value.
pub(crate) fn is_half(bytes: &[u8]) -> bool {
    let mut end = JsonEnd::default();
    end.feed(bytes).is_none() && (!end.may_end() || is_cut_word(bytes))
}

/// Returns `true` if the bytes are a truncated JSON literal, such as `tru` or `nul`.
fn is_cut_word(bytes: &[u8]) -> bool {
    let word = bytes.trim_ascii();
    [&b"true"[..], b"false", b"null"]
        .iter()
        .any(|whole| !word.is_empty() && word.len() < whole.len() && whole.starts_with(word))
}

/// Completes a truncated JSON text so that it can be parsed: cuts it after the last complete member
/// or element, and closes the brackets that were open there.
pub(crate) fn closed(bytes: &[u8]) -> Vec<u8> {
    let (mut open, mut cut) = (Vec::new(), 0);
    let (mut text, mut escape) = (false, false);
    // The brackets that were open at the cut. They are stored separately, because brackets after
    // the cut must not be closed.
    let mut at_cut = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        if text {
            match byte {
                _ if escape => escape = false,
                b'\\' => escape = true,
                b'"' => text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => text = true,
            b'{' | b'[' => {
                open.push(if byte == b'{' { b'}' } else { b']' });
                cut = i + 1;
                at_cut.clone_from(&open);
            }
            b'}' | b']' => {
                open.pop();
                cut = i + 1;
                at_cut.clone_from(&open);
            }
            b',' => {
                cut = i;
                at_cut.clone_from(&open);
            }
            _ => {}
        }
    }
    let mut whole = bytes[..cut].to_vec();
    whole.extend(at_cut.iter().rev());
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_value_is_detected() {
        for half in ["{", "{\"a\": \"x", "[1, 2", "\"abc", "tru", "{\"a\": \"}\""] {
            assert!(is_half(half.as_bytes()), "{half}");
        }
        for whole in ["{}", "[1]", "\"a\"", "12", "true", "{\"a\": 1} x"] {
            assert!(!is_half(whole.as_bytes()), "{whole}");
        }
    }

    #[test]
    fn every_prefix_can_be_closed() {
        let text =
            br#"{"schema": "x/1", "list": [{"a": 1, "b": "]"}, {"c": [true, {"d": "\"}"}]}]}"#;
        for cut in 1..=text.len() {
            let closed = closed(&text[..cut]);
            serde_json::from_slice::<serde_json::Value>(&closed)
                .unwrap_or_else(|e| panic!("{cut}: {}: {e}", String::from_utf8_lossy(&closed)));
        }
        let cut = closed(&text[..60]);
        let value: serde_json::Value = serde_json::from_slice(&cut).unwrap();
        assert_eq!(value["schema"], "x/1");
        assert_eq!(value["list"][0]["b"], "]");
    }
}
