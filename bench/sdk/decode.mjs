// Measures how long the Node SDKs take to read recorded streams from memory.
//
//     node decode.mjs < formats.json
//
// Input and output are those of decode.py; `fetch` answers from memory.
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { readFileSync } from 'node:fs';

const WARM = 1000;
const LONG = 3000;
// The least number of measured passes, however long they take.
const FEWEST = 3;
const CHAT = { model: 'm', messages: [{ role: 'user', content: 'go' }] };

async function drain(stream) {
  for await (const event of await stream) void event;
}

const READERS = {
  'openai-chat': [OpenAI, {
    events: (client) => drain(client.chat.completions.create({ ...CHAT, stream: true })),
    helper: (client) => client.chat.completions.stream(CHAT).finalChatCompletion(),
  }],
  'openai-responses': [OpenAI, {
    events: (client) => drain(client.responses.create({ model: 'm', input: 'go', stream: true })),
    helper: (client) => client.responses.stream({ model: 'm', input: 'go' }).finalResponse(),
  }],
  anthropic: [Anthropic, {
    events: (client) => drain(client.messages.create({ ...CHAT, max_tokens: 1, stream: true })),
    helper: (client) => client.messages.stream({ ...CHAT, max_tokens: 1 }).finalMessage(),
  }],
};

// Processor time of this thread in seconds; the threads of the garbage collector do not count.
function used() {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1e6;
}

async function passes(family, way, bodies) {
  const [Client, ways] = READERS[family];
  let body = null;
  const fetch = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  const client = new Client({ apiKey: 'none', baseURL: 'http://memory', fetch, maxRetries: 0, logLevel: 'off' });
  const seconds = [];
  let failed = 0;
  const began = performance.now();
  while (performance.now() - began < WARM + LONG || seconds.length < FEWEST) {
    const counts = performance.now() - began >= WARM;
    const start = used();
    failed = 0;
    for (body of bodies) {
      try {
        await ways[way](client);
      } catch {
        // If the helper rejects an answer as incomplete, it has still read all of it.
        failed += 1;
      }
    }
    if (counts) seconds.push(used() - start);
  }
  return { seconds, failed };
}

const seen = {};
for (const [name, { family, bodies }] of Object.entries(JSON.parse(readFileSync(0, 'utf8')))) {
  const bytes = bodies.map((text) => new TextEncoder().encode(text));
  seen[name] = {};
  for (const way of ['events', 'helper']) seen[name][way] = await passes(family, way, bytes);
}
console.log(JSON.stringify(seen));
