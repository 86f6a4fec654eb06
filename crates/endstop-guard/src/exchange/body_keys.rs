//! Credentials in the bodies of requests: a gateway may take its key there, and a request may name the
//! servers of tools with their keys.
//!
//! ```json
//! {"model":"m","api_key":"KEY","tools":[{"type":"mcp","authorization":"KEY","headers":{"X-Key":"KEY"}}]}
//! ```

use endstop_wire::redact::{is_random, is_secret_name};
use memchr::{memchr_iter, memmem, memrchr};

/// The longest name of a member that is looked at, in bytes.
const LONGEST_NAME: usize = 64;
/// The longest credential, in bytes.
const LONGEST: usize = 4096;

/// Visits the strings of members with secret names. Names and strings of JSON within a string do not
/// count: they belong to the conversation.
pub fn each_in_body(body: &[u8], mut found: impl FnMut(&str)) {
    for colon in memchr_iter(b':', body) {
        let Some(name) = name_before(body, colon) else { continue };
        let rest = body[colon + 1..].trim_ascii_start();
        if name.eq_ignore_ascii_case(b"headers") {
            values_in(rest).filter(|value| is_random(value)).for_each(|value| found(&value));
        }
        if rest.first() != Some(&b'"') || !sounds_secret(name) {
            continue;
        }
        // `Bearer KEY`: the key alone is the secret, too.
        if let Some(value) = string(rest).filter(|_| is_secret(name)) {
            if let Some((_, key)) = value.split_once(' ') {
                found(key.trim());
            }
            found(&value);
        }
    }
    for value in form_values(body, is_secret_name) {
        found(&value);
    }
}

/// Returns the boundary of a form: the text between its parts, after two hyphens.
pub fn form_boundary(body: &[u8]) -> Option<&str> {
    let line = &body.strip_prefix(b"--")?[..memmem::find(body, b"\r\n")?.checked_sub(2)?];
    // RFC 2046, section 5.1.1.
    (line.len() <= 70).then_some(line).and_then(|line| std::str::from_utf8(line).ok())
}

/// Returns the values of the fields of a form that have such names. Files are left out.
pub fn form_values(body: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let Some(boundary) = form_boundary(body) else { return Vec::new() };
    let between = format!("\r\n--{boundary}");
    let starts = std::iter::once(0)
        .chain(memmem::find_iter(body, between.as_bytes()).map(|at| at + b"\r\n".len()));
    let part = |start: usize| {
        let part = &body[start..];
        let head = &part[..memmem::find(part, b"\r\n\r\n")?];
        let value = &part[head.len() + b"\r\n\r\n".len()..];
        let value = &value[..memmem::find(value, between.as_bytes())?];
        let name = field_name(std::str::from_utf8(head).ok()?)?;
        let is_short = value.len() <= LONGEST;
        (is_short && is_wanted(name)).then(|| String::from_utf8_lossy(value).trim().to_owned())
    };
    starts.filter_map(part).collect()
}

/// Returns the name of a field, from the headers of its part (RFC 7578, section 4.2).
fn field_name(head: &str) -> Option<&str> {
    let is_disposition = |line: &&str| {
        let name = line.split_once(':').map_or("", |(name, _)| name);
        name.trim().eq_ignore_ascii_case("content-disposition")
    };
    let params = head.lines().find(is_disposition)?.split(';').skip(1);
    let mut pairs = params.filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("name"))?;
    Some(value.trim().trim_matches('"'))
}

/// Returns the name of the member whose colon is at this offset.
fn name_before(body: &[u8], colon: usize) -> Option<&[u8]> {
    let before = body[..colon].trim_ascii_end().strip_suffix(b"\"")?;
    let from = before.len().saturating_sub(LONGEST_NAME);
    let start = from + memrchr(b'"', &before[from..])? + 1;
    // A name with an escape is within a string of JSON, and no provider has such names.
    (!before[start - 1..].contains(&b'\\') && !body[..start - 1].ends_with(b"\\"))
        .then_some(&before[start..])
}

/// A quick check, because a conversation has very many members.
fn sounds_secret(name: &[u8]) -> bool {
    const SOUNDS: [&[u8]; 8] = [b"key", b"tok", b"sec", b"pas", b"aut", b"cre", b"coo", b"bea"];
    name.windows(3).any(|three| SOUNDS.iter().any(|one| three.eq_ignore_ascii_case(one)))
}

fn is_secret(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(is_secret_name)
}

/// Returns the strings in the object that begins here, such as the headers for a server of tools, which have any name. It
/// ends at a value that has others in it, which no header has, so that nested objects are not read again and again.
fn values_in(json: &[u8]) -> impl Iterator<Item = String> {
    let mut rest = json.strip_prefix(b"{");
    std::iter::from_fn(move || {
        loop {
            let name = rest.take()?.trim_ascii_start();
            let after = name.get(end_of(name)?..)?.trim_ascii_start().strip_prefix(b":")?;
            let value = after.trim_ascii_start();
            if value.first() == Some(&b'"') {
                let end = end_of(value)?;
                rest = value[end..].trim_ascii_start().strip_prefix(b",");
                return string(value);
            }
            let end = value.iter().position(|byte| b",{}[]".contains(byte))?;
            rest = value[end..].strip_prefix(b",");
        }
    })
}

/// Returns the length of the string that begins here, with its quotes.
fn end_of(json: &[u8]) -> Option<usize> {
    let json = json.strip_prefix(b"\"")?;
    let json = &json[..json.len().min(LONGEST)];
    let mut end = 0;
    loop {
        end += memchr::memchr2(b'"', b'\\', json.get(end..)?)?;
        if json[end] == b'"' {
            return Some(end + 2);
        }
        end += 2;
    }
}

/// Returns the string that begins here.
fn string(json: &[u8]) -> Option<String> {
    let json = &json[..json.len().min(LONGEST)];
    let mut end = 1;
    loop {
        end += memchr::memchr2(b'"', b'\\', json.get(end..)?)?;
        if json[end] == b'"' {
            return serde_json::from_slice(&json[..=end]).ok();
        }
        end += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{each_in_body, form_boundary, form_values};

    #[track_caller]
    fn check(body: &str, expected: &[&str]) {
        let mut found = Vec::new();
        each_in_body(body.as_bytes(), |key| found.push(key.to_owned()));
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn members_with_secret_names_are_found() {
        check(r#"{"model":"m","api_key":"K1","max_tokens":5}"#, &["K1"]);
        check(r#"{"tools":[{"headers": {"Authorization" : "Bearer K2"}}]}"#, &["K2", "Bearer K2"]);
        check(
            r#"{"authorization":"a\u0062\"c","x-api-key":"","apiKey":"K3"}"#,
            &["ab\"c", "", "K3"],
        );
    }

    #[test]
    fn headers_of_tool_servers_are_found_by_their_values() {
        let key = "q7Zk2mVx9LtR4bNs8WcY1dHf";
        let headers = format!(r#"{{"X-Foo": "{key}", "Notion-Version": "2022-06-28", "n": 4}}"#);
        check(&format!(r#"{{"tools":[{{"type":"mcp","headers":{headers}}}]}}"#), &[key]);
        check(&format!(r#"{{"headers":{{"a":true, "b" : "{key}","c":{{"d":"{key}"}}}}}}"#), &[key]);
        let escaped = r#"{"headers":{"q\"uote":"x\\","b":"#.to_owned() + &format!("\"{key}\"}}}}");
        check(&escaped, &[key]);
        check(&format!(r#"{{"headers":{{"a":1}},"content":"{key}"}}"#), &[]);
        for other in [
            r#"{"headers":"a"}"#,
            r#"{"headers":{"a":"#,
            r#"{"headers":{"a":"b"#,
            r#"{"headers":{"a":1"#,
            r#"{"headers":{"a""#,
            r#"{"headers":{}}"#,
            r#"{"headers":[{"a":"b"}]}"#,
        ] {
            check(other, &[]);
        }
        // Each one is read up to the next.
        check(&r#"{"headers":{"x":1,"#.repeat(100_000), &[]);
    }

    #[test]
    fn fields_of_forms_are_found() {
        let part = |head: &str, value: &str| format!("--x-1\r\n{head}\r\n\r\n{value}\r\n");
        let form = [
            part("Content-Disposition: form-data; name=\"model\"", "m"),
            part(
                "Content-Type: audio/wav\r\nContent-Disposition: form-data; filename=\"model\"; name=file",
                "name=\"model\"\r\n\r\nnot this",
            ),
            part("content-disposition: form-data;Name=api_key", "K1"),
            "--x-1--\r\n".to_owned(),
        ]
        .concat();
        assert_eq!(form_boundary(form.as_bytes()), Some("x-1"));
        assert_eq!(form_values(form.as_bytes(), |name| name == "model"), ["m"]);
        check(&form, &["K1"]);
        for end in 0..form.len() {
            let _ = form_values(&form.as_bytes()[..end], |_| true);
        }
        for other in ["", "--", "--\r\n", "{}", "\r\n--x\r\n"] {
            assert!(form_values(other.as_bytes(), |_| true).is_empty(), "{other}");
        }
    }

    #[test]
    fn text_of_conversation_is_not_searched() {
        check(r#"{"content":"{\"api_key\":\"K1\", \"token\" : \"K2\"}"}"#, &[]);
        check(r#"{"properties":{"token":{"type":"string"}},"max_tokens":"5"}"#, &["5"]);
        check(r#"{"key_path":"a","token_url":"b","author":"c","secret":3,"token":null}"#, &[]);
        for cut in ["\"api_key\":\"K", "\"api_key\":", ":", "\":\"", "\"api_key\":\"K\\"] {
            check(cut, &[]);
        }
    }
}
