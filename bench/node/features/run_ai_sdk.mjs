// The scenarios of the Vercel AI SDK.
import { createServer } from 'node:http';
import { createOpenAI } from '@ai-sdk/openai';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';
import * as ai from 'ai';
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { echo, main, must, partsOf, SCRIPTS, call } from './harness.mjs';
import { PRICE } from './server.mjs';

const { generateText, hasToolCall, Output, pipeUIMessageStreamToResponse, stepCountIs, streamText, tool } = ai;
const version = JSON.parse(readFileSync(new URL('../node_modules/ai/package.json', import.meta.url), 'utf8')).version;
const isResponses = process.env.HOW === 'responses';
const fetch = tap();
const plain = (name) => {
  // Without the tap, the SDK counts the tokens of a cache.
  const provider = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: 'x', fetch: name === 'cached' ? undefined : fetch });
  return isResponses ? provider.responses(name) : provider.chat(name);
};
const spec = { description: 'A tool.', inputSchema: z.object({ text: z.string() }), execute: async ({ text }) => echo(text) };
const tools = { echo: tool(spec) };
const prompt = 'Go.';
const generate = (e, name, own, more = {}) => generateText({ model: e.model(plain(name)), tools, prompt, maxRetries: 1, ...e.hooks(own), ...more });
const stream = (e, name, more = {}) => streamText({ model: e.model(plain(name)), tools, prompt, maxRetries: 1, ...e.hooks({ onError: () => {} }), ...more });
const during = (name, own, more) => (e) => e.during(() => generate(e, name, own, more));
const read = async (result) => { for await (const _ of result.textStream); return 'read'; };
const city = z.object({ name: z.string() });
const danger = { danger: tool({ ...spec, needsApproval: true }) };
const client = { danger: tool({ ...spec, execute: undefined }) };
const sub = (inner) => ({ sub: tool({ ...spec, execute: async () => (await generateText({ model: inner, tools, prompt, stopWhen: stepCountIs(30) })).text }) });
const route = (e, name, more) => e.during(() => stream(e, name, more).toUIMessageStreamResponse());

/** Approves what waits, as a client does with the messages of the result. */
const approved = ({ messages }) => {
  const requests = messages.flatMap((message) => (Array.isArray(message.content) ? message.content : [])).filter((part) => part.type === 'tool-approval-request');
  const content = requests.map(({ approvalId }) => ({ type: 'tool-approval-response', approvalId, approved: true }));
  return [{ role: 'user', content: prompt }, ...messages, { role: 'tool', content }];
};
const answered = ({ messages }) => {
  const content = [{ type: 'tool-result', toolCallId: 'call_d', toolName: 'danger', output: { type: 'text', value: 'of the client' } }];
  return [{ role: 'user', content: prompt }, ...messages, { role: 'tool', content }];
};
const messages = async (result) => ({ messages: (await result).response.messages });

/** Serves one request with the handler, and returns what a client of it reads. */
async function served(handler, leave) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const left = new AbortController();
  try {
    const response = await globalThis.fetch(`http://127.0.0.1:${server.address().port}`, { method: 'POST', signal: left.signal });
    if (!leave) return await partsOf(response);
    await response.body.getReader().read();
    left.abort();
    await new Promise((resolve) => setTimeout(resolve, 300));
    return [];
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** The pattern of the page for Express and plain http. */
const http = (e, name) => async (request, response) => {
  const left = new AbortController();
  response.on('close', () => left.abort());
  const ui = await e.during(() => stream(e, name).toUIMessageStream(), { signal: left.signal });
  pipeUIMessageStreamToResponse({ response, stream: ui });
};

const scenarios = [
  { name: 'answer', expect: 'stop', run: during('text') },
  { name: 'cached prompt', expect: 'stop', run: during('cached') },
  { name: 'tool and answer', expect: 'stop', run: during('once') },
  { name: 'parallel tool calls', expect: 'stop', run: during('twice') },
  { name: 'structured: Output.object', expect: 'submitted', run: during('city', {}, { tools: undefined, output: Output.object({ schema: city }), experimental_output: Output.object({ schema: city }) }) },
  { name: 'structured: generateObject', expect: 'submitted', run: (e) => e.during(() => ai.generateObject({ model: e.model(plain('city')), schema: city, prompt, abortSignal: e.signal })) },
  { name: 'structured, streamed', expect: 'submitted', run: (e) => e.during(() => read(stream(e, 'city', { tools: undefined, output: Output.object({ schema: city }), experimental_output: Output.object({ schema: city }) }))) },
  { name: 'structured, cut', expect: 'error_output_truncated', run: during('citycut', {}, { tools: undefined, output: Output.object({ schema: city }), experimental_output: Output.object({ schema: city }) }) },
  { name: 'answer in a call: hasToolCall', expect: 'submitted', run: during('once', { stopWhen: hasToolCall('echo') }) },
  { name: 'answer in a call: no execute', expect: 'submitted', run: during('danger', { stopWhen: hasToolCall('danger') }, { tools: client }) },
  { name: 'answer in a call: required', expect: 'submitted', run: during('danger', {}, { tools: client, toolChoice: 'required' }) },
  { name: 'own turn limit: stepCountIs', expect: 'error_max_turns', run: during('loop', { stopWhen: stepCountIs(3) }) },
  { name: 'own turn limit, without hooks', expect: 'error_max_turns', run: (e) => e.during(() => generateText({ model: e.model(plain('loop')), tools, prompt })) },
  { name: 'own stop rule', expect: 'error_halted', run: during('loop', { stopWhen: ({ steps }) => steps.at(-1).usage.inputTokens > 1 }) },
  { name: 'turns', expect: 'error_max_turns', settings: { maxTurns: 3 }, run: during('loop') },
  { name: 'budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.002 }, run: during('loop') },
  { name: 'approval', expect: 'stop', run: (e) => messages(e.during(() => generate(e, 'danger', {}, { tools: danger }))), again: (e, value) => generateText({ model: e.model(plain('danger')), tools: danger, messages: approved(value), ...e.hooks() }), only: 6 },
  { name: 'client tool', expect: 'stop', run: (e) => messages(e.during(() => generate(e, 'danger', {}, { tools: client }))), again: (e, value) => generateText({ model: e.model(plain('danger')), tools: client, messages: answered(value), ...e.hooks() }) },
  { name: 'cut answer', expect: 'error_output_truncated', run: during('cut') },
  { name: 'cut answer, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(stream(e, 'cut'))) },
  { name: 'cut call', expect: 'error_output_truncated', run: during('cutcall') },
  { name: 'cut call, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(stream(e, 'cutcall'))) },
  { name: 'sub-agent in a tool', expect: 'stop', run: (e) => during('main', {}, { tools: sub(plain('sub')) })(e) },
  { name: 'sub-agent under the run', expect: 'stop', run: (e) => during('main', {}, { tools: sub(e.model(plain('sub'))) })(e) },
  { name: 'run inside of a run, at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', {}, { tools: { sub: tool({ ...spec, execute: async () => { await during('subloop')(new Endstop({ price: PRICE })).catch(() => {}); return 'stopped'; } }) } })(e) },
  { name: 'sub-agent in a tool, streamed', expect: 'stop', run: (e) => e.during(() => read(stream(e, 'main', { tools: sub(plain('sub')) }))) },
  { name: 'sub-agent at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', {}, { tools: sub(plain('subloop')) })(e) },
  { name: 'agents at the same time', expect: 'stop', run: (e) => e.during(() => Promise.all(['one', 'two', 'three'].map((name) => generate(e, name)))) },
  { name: 'provider refuses', expect: 'error_provider_rejected', run: during('bad') },
  { name: 'attempt repeated by the SDK', expect: 'stop', run: during('busy') },
  { name: 'timeout', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: during('hang') },
  { name: 'timeout, streamed', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: (e) => e.during(() => read(stream(e, 'hang'))) },
  { name: 'caller aborts', expect: 'cancelled', isOpen: true, run: (e) => during('hang', {}, { abortSignal: AbortSignal.timeout(300) })(e) },
  { name: 'caller leaves the stream', expect: 'cancelled', isOpen: true, run: (e) => e.during(async () => { for await (const _ of stream(e, 'hang').textStream) break; }) },
  { name: 'route: Response', expect: 'stop', run: async (e) => { const parts = await partsOf(await route(e, 'once')); must(parts.at(-2).data.termination === 'stop', 'the data part'); } },
  { name: 'route: cut answer', expect: 'error_output_truncated', run: async (e) => { const parts = await partsOf(await route(e, 'cut')); must(parts.some((part) => part.data?.termination === 'error_output_truncated'), 'the data part'); } },
  { name: 'route: sub-agent', expect: 'stop', run: async (e) => partsOf(await route(e, 'main', { tools: sub(plain('sub')) })) },
  { name: 'route: client leaves', expect: 'cancelled', isOpen: true, run: async (e) => { const reader = (await route(e, 'hang')).body.getReader(); for (let n = 0; n < 4; n++) await reader.read(); await reader.cancel(); } },
  { name: 'route: approval', expect: 'parked', run: async (e) => { const parts = await partsOf(await route(e, 'danger', { tools: danger })); must(parts.some((part) => part.data?.isParked), 'the data part'); }, only: 6 },
  { name: 'route: text', expect: 'stop', run: async (e) => (await e.during(() => stream(e, 'once').toTextStreamResponse())).text() },
  { name: 'route: hooks alone', expect: 'stop', run: async (e) => stream(e, 'once').toTextStreamResponse().text() },
  { name: 'one agent, many requests', expect: 'stop', only: 6, run: async (e) => { const agent = new ai.ToolLoopAgent({ model: e.model(plain('text')), tools, ...e.hooks() }); const once = () => e.during(() => agent.generate({ prompt })); await once(); must(e.outcome.modelCalls === 1, 'a run of its own'); } },
  { name: 'http: stream', expect: 'stop', run: async (e) => { const parts = await served(http(e, 'once')); must(parts.at(-2).data.termination === 'stop', 'the data part'); } },
  { name: 'http: client leaves', expect: 'cancelled', isOpen: true, run: async (e) => served(http(e, 'hang'), true) },
  { name: 'express', expect: 'stop', run: async (e) => { const { default: express } = await import('express'); const app = express(); app.post('/', http(e, 'once')); const parts = await served(app); must(parts.at(-2).data.termination === 'stop', 'the data part'); } },
  { name: 'express: client leaves', expect: 'cancelled', isOpen: true, run: async (e) => { const { default: express } = await import('express'); const app = express(); app.post('/', http(e, 'hang')); await served(app, true); } },
];
const major = Number(version.split('.')[0]);
const applies = scenarios.filter((one) => (one.only ?? 0) <= major);
await main({ framework: `ai ${version}${isResponses ? ', responses' : ''}`, Endstop, scenarios: applies });
