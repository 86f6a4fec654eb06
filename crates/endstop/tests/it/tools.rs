//! Tools from closures, tool sets, permissions, and the file tools.

use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{
    BUILT_IN, Permissions, ReadFile, Shell, Tool, ToolContext, ToolOutput, ToolSet, ToolSetError,
    WriteFile, built_in, finish, tool_fn,
};
use endstop::{Permission, Termination};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("no object") };
    map
}

fn context_in(dir: &Path) -> ToolContext {
    ToolContext::new(
        "call_1".to_owned(),
        CancellationToken::new(),
        CancellationToken::new(),
        Duration::ZERO,
        Some(dir.to_owned()),
    )
}

async fn call(tool: &dyn Tool, dir: &Path, arguments: Value) -> ToolOutput {
    tool.call(object(arguments), context_in(dir)).await
}

#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// The destination.
    city: String,
    nights: u8,
    #[serde(default)]
    room: Option<Room>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Room {
    Single,
    Double,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn booking() -> impl Tool {
    tool_fn("book", "Books a room.", |args: Booking, context: ToolContext| async move {
        context.set_variable("city", args.city.clone());
        context.set_metric("last_reward", 0.5);
        match args.room {
            Some(Room::Single) => Err("no single rooms"),
            Some(Room::Double) | None => Ok(format!("{}, {} nights", args.city, args.nights)),
        }
    })
    .timeout(Duration::from_secs(3))
    .repeatable()
}

#[test]
fn derived_schema_has_no_references() {
    let schema = booking().schema();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["city", "nights"]));
    assert_eq!(schema["properties"]["city"]["description"], "The destination.");
    assert_eq!(schema["properties"]["nights"]["maximum"], 255);
    let text = schema.to_string();
    assert!(text.contains(r#""single""#) && !text.contains("$ref") && !text.contains("$schema"));
    let empty = tool_fn("now", "Tells the time.", |_: Nothing, _| async { "noon" }).schema();
    assert_eq!(empty, json!({"type": "object", "properties": {}}));
}

#[tokio::test]
async fn closure_receives_typed_arguments() {
    let tool = booking();
    let context = ToolContext::detached("call_1");
    let arguments = object(json!({"city": "Bergen", "nights": 2}));
    let output = tool.call(arguments, context.clone()).await;
    assert_eq!(output, ToolOutput::ok("Bergen, 2 nights"));
    let (variables, metrics) = context.take_values();
    assert_eq!(Value::Object(variables), json!({"city": "Bergen"}));
    assert_eq!(Value::Object(metrics), json!({"last_reward": 0.5}));
    assert_eq!(tool.timeout(), Some(Duration::from_secs(3)));
    assert!(tool.repeatable() && !tool.parallel_safe() && !tool.touches_machine());

    let arguments = object(json!({"city": "Bergen", "nights": 2, "room": "single"}));
    let output = tool.call(arguments, ToolContext::detached("call_2")).await;
    assert_eq!(output, ToolOutput::error("no single rooms"));
}

#[tokio::test]
async fn invalid_arguments_are_reported_to_model() {
    let tool = booking();
    for (arguments, said) in [
        (json!({"city": "Bergen"}), "missing field `nights`"),
        (json!({"city": "Bergen", "nights": "two"}), "at `nights`"),
        (json!({"city": "Bergen", "nights": 2, "room": "triple"}), "unknown variant `triple`"),
    ] {
        let output = tool.call(object(arguments), ToolContext::detached("call_1")).await;
        assert!(output.is_error());
        assert!(output.content.contains("invalid arguments"), "{}", output.content);
        assert!(output.content.contains(said), "{}", output.content);
    }
}

#[tokio::test]
async fn tool_receives_stop_request() {
    let whole_loop = CancellationToken::new();
    let context = ToolContext::new(
        "call_1".to_owned(),
        CancellationToken::new(),
        whole_loop.clone(),
        Duration::from_secs(2),
        None,
    );
    assert_eq!(context.grace(), Duration::from_secs(2));
    let waiting = tool_fn("wait", "Waits.", |_: Nothing, context: ToolContext| async move {
        context.cancelled().await;
        ToolOutput::halt("stopped")
    });
    let call = waiting.call(Map::new(), context.clone());
    whole_loop.cancel();
    assert_eq!(call.await.halt.as_deref(), Some("stopped"));
    assert!(context.is_cancelled());
    assert_eq!(context.grace(), Duration::ZERO);
}

#[test]
fn set_refuses_duplicate_and_invalid_names() {
    let mut tools = ToolSet::default();
    tools.add(Shell::default()).unwrap();
    tools.add(ReadFile::default()).unwrap();
    let twice = tools.add(Shell::default());
    assert_eq!(twice, Err(ToolSetError::Duplicate("shell".to_owned())));
    assert_eq!(tools.len(), 2);
    let unknown = tools.get("read-file").err().unwrap().to_string();
    assert!(unknown.contains("did you mean `read_file`?"), "{unknown}");
    assert!(unknown.contains("shell, read_file"), "{unknown}");
    for name in ["", "a b", "tool.x", &"x".repeat(65)] {
        let tool = tool_fn(name, "", |_: Nothing, _| async { "" });
        assert_eq!(tools.add(tool), Err(ToolSetError::Name(name.to_owned())));
    }
    let slow = Shell::default().with_timeout(Duration::from_secs(1));
    tools.replace(slow).unwrap();
    assert_eq!(tools.get("shell").unwrap().timeout(), Some(Duration::from_secs(1)));
    assert!(tools.replace(WriteFile::default()).is_err());
    assert_eq!(format!("{tools:?}"), r#"["shell", "read_file"]"#);
}

#[test]
fn built_in_tools_found_by_name() {
    for name in BUILT_IN {
        let tool = built_in(name).unwrap();
        assert_eq!(tool.name(), name);
        assert_eq!(tool.schema()["type"], "object");
        assert!(tool.touches_machine());
    }
    let unknown = built_in("shel").err().unwrap().to_string();
    assert!(unknown.contains("`shell`") && unknown.contains("write_file"), "{unknown}");
    let finish = finish::definition();
    assert_eq!(finish.name, "finish");
    for property in ["deliverable", "summary", "infeasible"] {
        assert!(finish.schema["properties"][property].is_object(), "{property}");
    }
}

#[test]
fn strictest_permission_applies() {
    let rules = Permissions::default().allow("*").deny("shell");
    assert_eq!(rules.of("shell"), Permission::Deny);
    let rules = Permissions::default().touching_machine(Permission::Ask).allow("read_file");
    assert_eq!(rules.of_tool(&Shell::default()), Permission::Ask);
    assert_eq!(rules.of_tool(&ReadFile::default()), Permission::Allow);
    assert_eq!(rules.of_tool(&booking()), Permission::Allow);
    let closed = Permissions::default().otherwise(Permission::Deny).allow("read_*");
    assert_eq!(closed.of("read_file"), Permission::Allow);
    assert_eq!(closed.of("shell"), Permission::Deny);
    let misspelt = Permissions::default().deny("shel").deny("sh*");
    assert_eq!(misspelt.idle(&["shell"]).collect::<Vec<_>>(), ["shel"]);
}

#[tokio::test]
async fn loop_enforces_tool_rules() {
    let script = || [Turn::call("shell", &json!({"command": "echo no"})), Turn::text("Well.")];
    let loop_with = |permissions| {
        crate::support::agent(script()).tool(Shell::default()).permissions(permissions).build()
    };
    let agent = loop_with(Permissions::default().deny("sh*")).unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    let history = serde_json::to_string(&outcome.messages).unwrap();
    assert!(history.contains("permission denied"), "{history}");
    for (permissions, says) in [
        (
            Permissions::default().deny("shel"),
            "unknown tool `shel` in a permission: expected one of shell",
        ),
        (Permissions::default().ask("shell"), "but there is no approver"),
    ] {
        let refused = loop_with(permissions).err().unwrap().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    let named = |name: &str| tool_fn(name, "", |_: Nothing, _| async { "" });
    for (names, says) in [
        (["a", "a"], "two tools named `a`"),
        (["a", "a b"], "`a b`"),
        (["a", "finish"], "`finish`"),
    ] {
        let [one, other] = names.map(named);
        let refused = crate::support::agent(script()).tool(one).tool(other).build();
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

#[tokio::test]
async fn file_is_written_and_read_partially() {
    let dir = tempfile::tempdir().unwrap();
    let (read, write) = (ReadFile::default(), WriteFile::default());
    let text = "one\ntwo\nthrée\n";
    let arguments = json!({"path": "a/b/c.txt", "content": text});
    let output = call(&write, dir.path(), arguments).await;
    assert_eq!(output, ToolOutput::ok("a/b/c.txt: 15 bytes written"));
    let output = call(&read, dir.path(), json!({"path": "a/b/c.txt"})).await;
    assert_eq!(output, ToolOutput::ok(text));
    let output = call(&read, dir.path(), json!({"path": "a/b/c.txt", "offset": 2, "limit": 1}));
    assert_eq!(output.await, ToolOutput::ok("two\n"));
    let output = call(&read, dir.path(), json!({"path": "a/b/c.txt", "offset": 3})).await;
    assert_eq!(output, ToolOutput::ok("thrée\n"));
    let output = call(&read, dir.path(), json!({"path": "a/b/c.txt", "offset": 9})).await;
    assert_eq!(output, ToolOutput::error("a/b/c.txt: has no line 9; its last is 3"));
    // The folder contains only the file.
    assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);

    let output = call(&write, dir.path(), json!({"path": "a/b/c.txt", "content": ""})).await;
    assert_eq!(output, ToolOutput::ok("a/b/c.txt: 0 bytes written"));
    let output = call(&read, dir.path(), json!({"path": "a/b/c.txt"})).await;
    assert_eq!(output, ToolOutput::ok(""));
}

#[tokio::test]
async fn unreadable_file_error_names_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("binary"), b"\x7fELF\0\0").unwrap();
    fs::write(dir.path().join("latin1"), b"caf\xe9\n").unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    let read = ReadFile::default();
    for (arguments, said) in [
        (json!({"path": "missing"}), "missing: "),
        (json!({"path": "binary"}), "binary: is not text (6 bytes)"),
        (json!({"path": "latin1"}), "latin1: is not text in UTF-8 (5 bytes)"),
        (json!({"path": "folder"}), "folder: is a folder"),
        (json!({"path": ""}), "the path is empty"),
        (json!({}), "the argument `path` is missing"),
        (json!({"path": 3}), "the argument `path` must be a string"),
        (json!({"path": "latin1", "offset": 0}), "the argument `offset` must be a whole number"),
    ] {
        let output = call(&read, dir.path(), arguments).await;
        assert!(output.is_error() && output.content.contains(said), "{said}: {output:?}");
    }
}

#[tokio::test]
async fn large_file_is_truncated_with_note() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), "é\n".repeat(1_000_000)).unwrap();
    let read = ReadFile::default();
    let output = call(&read, dir.path(), json!({"path": "large"})).await;
    assert!(!output.is_error() && output.content.len() < 66_000);
    assert!(output.content.contains("the file has 3000000 bytes: continue with `offset`"));
    let output = call(&read, dir.path(), json!({"path": "large", "offset": 999_999})).await;
    assert_eq!(output, ToolOutput::ok("é\né\n"));
}

#[cfg(unix)]
#[tokio::test]
async fn reading_opens_only_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let read = ReadFile::default();
    for (path, what) in [("pipe", "a pipe"), ("/dev/zero", "a device")] {
        let reading = call(&read, dir.path(), json!({"path": path}));
        let output = tokio::time::timeout(crate::support::HANG, reading).await.unwrap();
        assert_eq!(output, ToolOutput::error(format!("{path}: is {what}, not a file")));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn writing_keeps_links_and_modes() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("script", dir.path().join("link")).unwrap();
    let write = WriteFile::default();
    let output = call(&write, dir.path(), json!({"path": "link", "content": "new"})).await;
    assert!(!output.is_error(), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert!(dir.path().join("link").is_symlink());
    let output = call(&write, dir.path(), json!({"path": ".", "content": "x"})).await;
    assert!(output.is_error() && output.content.contains("is a folder"), "{output:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn path_outside_root_is_refused() {
    use std::os::unix::fs::symlink;
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("inside")).unwrap();
    fs::create_dir(outer.path().join("root2")).unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    fs::write(root.join("inside/file"), "fine").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("../new", root.join("dangling")).unwrap();
    symlink("inside", root.join("within")).unwrap();
    let read = ReadFile::default().confined_to(".");
    let write = WriteFile::default().confined_to(".");
    let absolute = outer.path().join("secret").display().to_string();
    for path in [
        "../secret",
        "inside/../../secret",
        "link",
        "up/secret",
        "within/../../secret",
        "../root2/x",
        "up/new/file",
        "missing/../../secret",
        "dangling",
        "/etc/passwd",
        absolute.as_str(),
    ] {
        let output = call(&read, &root, json!({"path": path})).await;
        assert!(output.is_error() && !output.content.contains("root:"), "{path}: {output:?}");
        let output = call(&write, &root, json!({"path": path, "content": "x"})).await;
        assert!(output.is_error(), "{path}: {output:?}");
    }
    assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "secret");
    let mut names: Vec<_> =
        fs::read_dir(outer.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["root", "root2", "secret"]);

    for path in ["inside/file", "within/file", "inside/../inside/file", "up/root/inside/file"] {
        let output = call(&read, &root, json!({"path": path})).await;
        assert_eq!(output, ToolOutput::ok("fine"), "{path}");
    }
    let output = call(&write, &root, json!({"path": "new/deep/file", "content": "x"})).await;
    assert!(!output.is_error(), "{output:?}");
    assert_eq!(fs::read_to_string(root.join("new/deep/file")).unwrap(), "x");
}

#[tokio::test]
async fn stopped_write_keeps_old_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "old").unwrap();
    let context = context_in(dir.path());
    let token = CancellationToken::new();
    let stopped = ToolContext::new(
        "call_1".to_owned(),
        token.clone(),
        CancellationToken::new(),
        Duration::ZERO,
        context.working_dir().map(Path::to_owned),
    );
    token.cancel();
    let arguments = object(json!({"path": "file", "content": "new"}));
    let output = WriteFile::default().call(arguments, stopped).await;
    assert_eq!(output, ToolOutput::error("file: stopped before it was written"));
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn tools_can_be_kept_as_objects() {
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(booking()), Arc::new(Shell::default())];
    assert_eq!(tools.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["book", "shell"]);
}

#[tokio::test]
async fn finish_is_offered_with_other_tools() {
    let offered = |builder: fn(endstop::AgentBuilder) -> endstop::AgentBuilder| async move {
        let server = Server::start(|request| Reply::turn(request, &Turn::text("hi"))).unwrap();
        let agent = builder(crate::support::over(&server, "openai-chat")).build().unwrap();
        assert!(agent.run("hello").unwrap().await.is_success());
        let tools = server.requests()[0].body["tools"].clone();
        let names = tools.as_array().into_iter().flatten();
        names.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Many local models refuse a request that has tools at all.
    assert_eq!(offered(|builder| builder).await, [""; 0]);
    assert_eq!(offered(|builder| builder.tool(booking())).await, ["book", "finish"]);
    assert_eq!(offered(|builder| builder.finish_tool(true)).await, ["finish"]);
    assert_eq!(offered(|builder| builder.tool(booking()).finish_tool(false)).await, ["book"]);
}
