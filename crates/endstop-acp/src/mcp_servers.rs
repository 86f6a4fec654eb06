//! The MCP servers that an editor passes on.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{EnvVariable, HttpHeader, McpServer as Given};
use endstop::mcp::McpServer;
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of servers of a session.
const MOST: usize = 64;

/// Returns the servers, in the given order.
///
/// # Errors
/// A transport that is not supported, a name that is given twice, or too many servers.
pub(crate) fn servers(given: Vec<Given>, dir: &Path) -> Result<Vec<McpServer>, Error> {
    let wrong = |problem: String| Error::invalid_params().data(format!("mcpServers: {problem}"));
    if given.len() > MOST {
        return Err(wrong(format!("{} servers given, at most {MOST} expected", given.len())));
    }
    let mut names = BTreeSet::new();
    let mut servers = Vec::with_capacity(given.len());
    for (at, given) in given.into_iter().enumerate() {
        let (name, server) = match given {
            Given::Stdio(given) => {
                // The words are quoted for the shell, so a path must be text.
                let command = given.command.to_str().ok_or_else(|| {
                    wrong(format!("`{}`: `command`: expected a path in UTF-8", given.name))
                })?;
                let words = std::iter::once(command.to_owned()).chain(given.args);
                let server = McpServer::command(&given.name, words).in_dir(dir);
                let set =
                    |server: McpServer, pair: EnvVariable| server.variable(pair.name, pair.value);
                (given.name, given.env.into_iter().fold(server, set))
            }
            Given::Http(given) => {
                let server = McpServer::http(&given.name, given.url);
                let add =
                    |server: McpServer, pair: HttpHeader| server.header(pair.name, pair.value);
                (given.name, given.headers.into_iter().fold(server, add))
            }
            Given::Sse(given) => {
                return Err(wrong(format!(
                    "`{}`: the SSE transport is not supported; use `http` or `stdio`",
                    given.name
                )));
            }
            _ => {
                return Err(wrong(format!(
                    "server {at}: unknown transport; use `http` or `stdio`"
                )));
            }
        };
        // The name is the prefix of the server's tools, which must differ.
        if !names.insert(name.clone()) {
            return Err(wrong(format!("`{name}` is given twice")));
        }
        servers.push(server);
    }
    Ok(servers)
}
