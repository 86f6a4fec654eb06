//! A tool with images: the model looks at files of a folder and describes them.
use base64::prelude::{BASE64_STANDARD, Engine};
use rig::core::message::{ImageMediaType, ToolResultContent};
use rig::core::tool::{ToolExecutionError, ToolOutput};
use rig::prelude::*;
use rig::providers::anthropic::Anthropic;
use rig::rig_tool;

/// Shows an image.
#[rig_tool(params(file = "The name of a PNG file, without its folder."))]
async fn look(file: String) -> Result<ToolOutput, ToolExecutionError> {
    if file.contains(['/', '\\']) || file == ".." {
        return Err(ToolExecutionError::other("only names without a folder"));
    }
    // The macro takes a function, which cannot capture the folder.
    let folder = std::env::args().nth(1).ok_or_else(|| ToolExecutionError::other("no folder"))?;
    let bytes = tokio::fs::read(std::path::Path::new(&folder).join(file)).await;
    let bytes = bytes.map_err(|error| ToolExecutionError::other(error.to_string()))?;
    let data = BASE64_STANDARD.encode(bytes);
    Ok(ToolOutput::one(ToolResultContent::image_base64(data, Some(ImageMediaType::PNG), None)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::env::args().nth(1).ok_or("usage: image_tool FOLDER")?;
    let model = Anthropic::from_env()?.completion("claude-sonnet-4-5");
    let agent = AgentBuilder::new(model).tool(Look).max_tokens(8192).default_max_turns(25).build();
    let done = agent.prompt("Describe chart.png in one sentence.").await?;
    println!("{}\n[{:?}]", done.output(), done.usage);
    Ok(())
}
