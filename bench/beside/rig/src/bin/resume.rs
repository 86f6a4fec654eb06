//! A run that survives its process: started again, it continues where the last process was killed.
//!
//! rig's agent does not store a run. Its state machine can be stored, so the program drives it by hand.
use rig::agent::tool::{ToolContext, ToolSet};
use rig::core::completion::CompletionRequest;
use rig::core::message::UserContent;
use rig::core::tool::ToolExecutionError;
use rig::providers::openai::OpenAI;
use rig::rig_tool;
use rig::run::{AgentRun, AgentRunStep, ModelTurn, RunSpec, prepare_request};

/// Runs a command of the shell.
#[rig_tool(params(command = "The command."))]
async fn shell(command: String) -> Result<String, ToolExecutionError> {
    let done = tokio::process::Command::new("sh").arg("-c").arg(command).output().await;
    let done = done.map_err(|error| ToolExecutionError::other(error.to_string()))?;
    Ok(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [file, task] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: resume FILE TASK".into());
    };
    let model = OpenAI::from_env()?.chat("gpt-4.1-mini");
    let mut tools = ToolSet::default();
    tools.add_tool(Shell);
    let (mut run, mut open): (AgentRun, Option<AgentRunStep>) = match std::fs::read(file) {
        Ok(stored) => serde_json::from_slice(&stored)?,
        Err(_) => (AgentRun::new(task.as_str()).max_turns(25), None),
    };
    let done = loop {
        // The step is stored with the run, because the run has already moved past it.
        let step = match open.take() {
            Some(step) => step,
            None => run.next_step()?,
        };
        // A process that is killed while it writes leaves the last state in the file.
        let temporary = format!("{file}.new");
        std::fs::write(&temporary, serde_json::to_vec(&(&run, Some(&step)))?)?;
        std::fs::rename(&temporary, file)?;
        match step {
            AgentRunStep::CallModel { prompt, history, .. } => {
                let able = model.capabilities().completion;
                let defined = tools.tool_definitions();
                let ready = prepare_request(&RunSpec::new(), &able, &history, defined, None, None)?;
                let request = ready.clone().apply(CompletionRequest::new(prompt));
                let turn = ModelTurn::from_response(&model.call(request).await?, &ready);
                run.model_response(turn)?;
            }
            AgentRunStep::CallTools { calls } => {
                let mut results = Vec::new();
                for call in calls {
                    let (id, of) = (call.tool_call.id, call.tool_call.function);
                    // A tool that ran when the process was killed runs again.
                    let arguments = serde_json::to_string(&of.arguments)?;
                    let result =
                        tools.execute(of.name.as_str(), arguments, &mut ToolContext::new()).await;
                    let content = result.output().clone().into_content();
                    let done = UserContent::tool_result(id, of.name, content);
                    results.push(call.preresolved_result.unwrap_or(done));
                }
                run.tool_results(results)?;
            }
            AgentRunStep::Done(done) => break done,
        }
    };
    std::fs::remove_file(file)?;
    println!("{}\n[{:?}]", done.output(), done.usage);
    Ok(())
}
