// A tool loop on Chat Completions, not streamed.
import { execSync } from 'node:child_process';
import OpenAI from 'openai';

const client = new OpenAI();
const messages = [{ role: 'user', content: process.env.TASK }];
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const tools = [{ type: 'function', function: { name: 'bash', parameters } }];
for (let turn = 0; turn < 100; turn++) {
  const request = { model: 'gpt-4o', messages, tools };
  // Without the option a stream reports no usage.
  const options = { stream_options: { include_usage: true } };
  const stream = turn % 2 === 1 && client.chat.completions.stream({ ...request, ...options });
  const reply = stream ? await stream.finalChatCompletion() : await client.chat.completions.create(request);
  const { message, finish_reason: reason } = reply.choices[0];
  console.log('turn', turn, reason, message.tool_calls?.length ?? 0, message.content);
  messages.push(message);
  if (!message.tool_calls?.length) break;
  for (const call of message.tool_calls) {
    const output = execSync(JSON.parse(call.function.arguments).command).toString();
    messages.push({ role: 'tool', tool_call_id: call.id, content: output });
  }
}
