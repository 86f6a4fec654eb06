//! A tool with images: the model looks at files of a folder and describes them.

use endstop::Agent;
use endstop::provider::http::HttpProvider;
use endstop::tool::{ToolError, ToolOutput, try_tool_fn};
use schemars::JsonSchema;
use serde::Deserialize;

/// Shows an image.
#[derive(Deserialize, JsonSchema)]
struct Look {
    /// The name of a PNG file, without its folder.
    file: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: image_tool FOLDER")?;
    let look = try_tool_fn("look", "", move |look: Look, _context| {
        let place = std::path::Path::new(&folder).join(&look.file);
        async move {
            if look.file.contains(['/', '\\']) || look.file == ".." {
                return Err(ToolError::denied("only names without a folder"));
            }
            let bytes = tokio::fs::read(place).await?;
            Ok(ToolOutput::file(&bytes, "image/png")?)
        }
    });
    let agent = Agent::builder(HttpProvider::builder("anthropic/claude-sonnet-4-5").build()?)
        .tool(look)
        .build()?;
    let outcome = agent.run("Describe chart.png in one sentence.")?.await;
    println!("{}\n[{outcome}]", outcome.answer().unwrap_or_default());
    Ok(())
}
