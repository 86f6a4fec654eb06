// The agent of the AI SDK with the adapter of Endstop. It runs as a copy in a folder that has the packages.
import { exec } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { parseArgs, promisify } from 'node:util';
import { createOpenAI } from '@ai-sdk/openai';
import { Price } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';
import { Output, ToolLoopAgent, jsonSchema, tool } from 'ai';

const [text, flag] = [{ type: 'string' }, { type: 'boolean' }];
const options = { turns: text, budget: text, seconds: text, structured: flag, version: flag };
const { values, positionals } = parseArgs({ allowPositionals: true, options });
if (values.version) {
  console.log(JSON.parse(readFileSync(new URL('node_modules/ai/package.json', import.meta.url), 'utf8')).version);
  process.exit(0);
}
const object = (key) => jsonSchema({ type: 'object', properties: { [key]: { type: 'string' } }, required: [key], additionalProperties: false });
const execute = async ({ command }, { abortSignal: signal }) => promisify(exec)(command, { signal }).then(({ stdout, stderr }) => stdout + stderr, String);
const stop = new AbortController();
['SIGINT', 'SIGTERM'].forEach((name) => process.once(name, () => stop.abort()));
const endstop = new Endstop({
  signal: stop.signal,
  price: Price.parse('in=3,out=15,cached=0.3,cache_write=3.75'),
  ...(values.turns && { maxTurns: Number(values.turns) }),
  ...(values.budget && { maxBudgetUsd: Number(values.budget) }),
  ...(values.seconds && { timeoutMs: 1000 * Number(values.seconds) }),
});
const agent = new ToolLoopAgent({
  model: endstop.model(createOpenAI({ fetch: tap() })('gpt-4o')),
  tools: { shell: tool({ description: 'Run a shell command.', inputSchema: object('command'), execute }) },
  ...(values.structured && { output: Output.object({ schema: object('answer') }) }),
  ...endstop.hooks(),
});
await endstop.during(() => agent.generate({ prompt: positionals[0], abortSignal: endstop.signal })).catch(console.error);
console.log(JSON.stringify(endstop.outcome));
// A command that was stopped may have left children, which hold its output open.
process.exit(endstop.outcome.isSuccess ? 0 : 1);
