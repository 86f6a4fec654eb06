//! A provider from nothing: it answers with the user's words in reverse.
use futures::stream;
use rig::core::completion::options::{Mapping, OptionFields, OptionMap};
use rig::core::completion::{Accepts, CompletionRequest, FinishReason, ReplayTarget};
use rig::core::driver::{Exchange, Opened, Opening, Transport};
use rig::core::error::EncodeError;
use rig::core::message::Api;
use rig::core::operation::{Block, Completion, Finish};
use rig::core::wire::document::{Reassemble, Serves};
use rig::core::wire::{Decoder, Descriptor, Flow, Mode, Out, Wire, WireEvent};
use rig::prelude::*;

#[derive(Clone, Debug)]
struct Reverse;

impl ReplayTarget for Reverse {
    fn api(&self) -> Api {
        Api::from_static("example.reverse")
    }
    fn provider(&self) -> &str {
        "example"
    }
    fn model(&self) -> &str {
        "reverse-1"
    }
    fn accepts(&self, _: &str) -> Accepts {
        Accepts::ALL
    }
    fn map_options(&self, _: &CompletionRequest, _: OptionFields<'_>) -> OptionMap {
        let none = || Mapping::Nothing;
        OptionMap {
            reasoning: none(),
            cache: none(),
            service_tier: none(),
            verbosity: none(),
            parallel_tool_calls: none(),
            top_p: none(),
            seed: none(),
            stop: none(),
        }
    }
}

#[derive(Default)]
struct Document(String);

impl Serves<Completion> for Document {}

impl Reassemble<String> for Document {
    fn absorb(&mut self, frame: &String) {
        self.0.push_str(frame);
    }
    fn finish(self) -> serde_json::Value {
        self.0.into()
    }
}

struct Whole;

impl<'id> Decoder<'id, Completion, String> for Whole {
    type Event = String;
    fn classify(&self, frame: String) -> WireEvent<String> {
        WireEvent::Known(frame)
    }
    fn decode(&mut self, text: String, mut out: Out<'id, Completion>) -> Result<Flow, ProviderError> {
        out.whole(0, Block::Text, serde_json::Value::Null, &text)?;
        Ok(out.end(Finish { reason: Some(FinishReason::Stop), ..Finish::default() }))
    }
}

impl Wire for Reverse {
    type Op = Completion;
    type Payload = CompletionRequest;
    type Frame = String;
    type Decoder<'id> = Whole;
    type Reassembler = Document;
    fn describe(&self) -> Descriptor<'_> {
        Descriptor::new("example").model("reverse-1").replay(self)
    }
    fn encode(&self, request: CompletionRequest, _: Mode) -> Result<CompletionRequest, EncodeError> {
        Ok(request)
    }
    fn decoder<'id>(&self) -> Self::Decoder<'id> {
        Whole
    }
}

impl Transport<Reverse> for Reverse {
    fn send(&self, request: CompletionRequest, _: Exchange) -> Opening<String> {
        let said = request.chat_history.last().and_then(|last| last.rag_text()).unwrap_or_default();
        Opening::ready(Opened::new(stream::iter([Ok(said.chars().rev().collect())])))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(Model::new(Reverse, Reverse)).build();
    println!("{}", agent.prompt("Never odd or even").await?.output());
    Ok(())
}
