// A tool loop on Messages; every second call is streamed.
import { execSync } from 'node:child_process';
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic();
const messages = [{ role: 'user', content: process.env.TASK }];
const schema = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const tools = [{ name: 'bash', input_schema: schema }];
for (let turn = 0; turn < 100; turn++) {
  const request = { model: 'claude-sonnet-4-5', max_tokens: 1000, messages, tools };
  const reply = turn % 2 === 1 ? await client.messages.stream(request).finalMessage() : await client.messages.create(request);
  const calls = reply.content.filter((block) => block.type === 'tool_use');
  console.log('turn', turn, reply.stop_reason, calls.length, reply.content.find((block) => block.text)?.text);
  messages.push({ role: 'assistant', content: reply.content });
  if (!calls.length) break;
  messages.push({ role: 'user', content: calls.map((call) => (
    { type: 'tool_result', tool_use_id: call.id, content: execSync(call.input.command).toString() })) });
}
