// The agent of the AI SDK. Node looks for packages next to the script, so it runs as a copy in a folder that has them.
import { exec } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { parseArgs, promisify } from 'node:util';
import { openai } from '@ai-sdk/openai';
import { Output, ToolLoopAgent, isStepCount, jsonSchema, tool } from 'ai';

const flag = { type: 'boolean' };
const { values, positionals } = parseArgs({ allowPositionals: true, options: { turns: { type: 'string' }, structured: flag, version: flag } });
if (values.version) {
  console.log(JSON.parse(readFileSync(new URL('node_modules/ai/package.json', import.meta.url), 'utf8')).version);
  process.exit(0);
}
const object = (key) => jsonSchema({ type: 'object', properties: { [key]: { type: 'string' } }, required: [key], additionalProperties: false });
const execute = async ({ command }) => promisify(exec)(command).then(({ stdout, stderr }) => stdout + stderr, String);
const agent = new ToolLoopAgent({
  model: openai('gpt-4o'),
  tools: { shell: tool({ description: 'Run a shell command.', inputSchema: object('command'), execute }) },
  ...(values.turns && { stopWhen: isStepCount(Number(values.turns)) }),
  ...(values.structured && { output: Output.object({ schema: object('answer') }) }),
});
const result = await agent.generate({ prompt: positionals[0] });
console.log(values.structured ? result.output : result.text);
