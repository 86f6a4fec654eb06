//! Tool calls as an editor shows them.

use agent_client_protocol::v1::schema::{
    ToolCall, ToolCallContent, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use endstop::ToolStatus;
use endstop::event::Origin;
use endstop_report::visible::visible;
use serde_json::Value;
use std::path::Path;

/// Returns the id of a call for the editor, unique in its session: a provider may give the calls of
/// two turns the same id.
pub(crate) fn id_of(origin: &Origin, call: &str) -> ToolCallId {
    let turn = origin.turn().unwrap_or_default();
    ToolCallId::new(format!("{}-{turn}-{call}", origin.run_id()))
}

/// Longest title, in characters.
const TITLE: usize = 120;

/// Returns a call that waits.
pub(crate) fn pending(id: ToolCallId, name: &str) -> ToolCall {
    ToolCall::new(id, title(name, None)).name(name.to_owned()).kind(kind_of(name))
}

/// Returns the name, the arguments and the files of a call, for an update of it.
pub(crate) fn described(name: &str, arguments: &str, dir: &Path) -> ToolCallUpdateFields {
    let input =
        serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
    let mut fields = ToolCallUpdateFields::new()
        .title(title(name, Some(&input)))
        .name(name.to_owned())
        .kind(kind_of(name));
    if let Some(path) = input.get("path").and_then(Value::as_str).filter(|path| !path.is_empty()) {
        fields = fields.locations(vec![ToolCallLocation::new(dir.join(path))]);
    }
    fields.raw_input(input)
}

/// Returns the update for a call that has been answered.
pub(crate) fn ended(id: ToolCallId, status: ToolStatus, content: String) -> ToolCallUpdate {
    // The protocol has no word for a call that was denied, aborted or skipped; the text says it.
    let status = if status.is_error() { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
    let content = vec![ToolCallContent::from(content)];
    let fields = ToolCallUpdateFields::new().status(status).content(content);
    ToolCallUpdate::new(id, fields)
}

/// Returns the kind that decides the editor's icon. Only the built-in tools are known: the name of
/// another tool does not prove what it does.
fn kind_of(name: &str) -> ToolKind {
    match name {
        "read_file" => ToolKind::Read,
        "write_file" => ToolKind::Edit,
        "shell" => ToolKind::Execute,
        _ => ToolKind::Other,
    }
}

/// Returns the name with its most telling argument, in one line.
fn title(name: &str, input: Option<&Value>) -> String {
    let argument = input.and_then(|input| {
        ["command", "path", "url", "query"].iter().find_map(|key| input.get(*key)?.as_str())
    });
    let whole = match argument {
        Some(argument) => format!("{name}: {argument}"),
        None => name.to_owned(),
    };
    // A line break would hide the rest of a command from a person who is asked to allow it.
    let line: String = whole.chars().map(|c| if c.is_control() { '␤' } else { c }).collect();
    // Characters without a shape, or that change the direction of text, would show another command.
    let shown = visible(&line);
    if shown.chars().count() <= TITLE {
        return shown;
    }
    shown.chars().take(TITLE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_one_short_line() {
        let input = serde_json::json!({"command": format!("ls\nrm -rf / {}", "x".repeat(500))});
        let title = title("shell", Some(&input));
        assert!(title.starts_with("shell: ls␤rm -rf / x"), "{title}");
        assert_eq!(title.chars().count(), TITLE);
    }

    #[test]
    fn title_shows_hidden_characters() {
        let input = serde_json::json!({"command": "echo \u{202e}ok\u{200b}"});
        let title = title("shell", Some(&input));
        assert_eq!(title, "shell: echo <U+202E>ok<U+200B>");
    }

    #[test]
    fn relative_path_is_located_in_folder() {
        let fields = described("read_file", r#"{"path": "src/a.rs"}"#, Path::new("/project"));
        let locations = fields.locations.unwrap();
        assert_eq!(locations[0].path, Path::new("/project/src/a.rs"));
        assert_eq!(fields.kind, Some(ToolKind::Read));
    }

    #[test]
    fn cut_arguments_are_shown_as_text() {
        let fields = described("shell", r#"{"command": "l"#, Path::new("/"));
        assert_eq!(fields.raw_input, Some(Value::String(r#"{"command": "l"#.to_owned())));
    }
}
