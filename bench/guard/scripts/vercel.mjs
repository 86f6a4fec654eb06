// The Vercel AI SDK on Responses, streamed.
import { exec } from 'node:child_process';
import { promisify } from 'node:util';
import { createOpenAI } from '@ai-sdk/openai';
import * as ai from 'ai';

const steps = ai.isStepCount ?? ai.stepCountIs;
const schema = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const run = async ({ command }) => (await promisify(exec)(command)).stdout;
const result = ai.streamText({
  model: createOpenAI({})('gpt-5.1'),
  prompt: process.env.TASK,
  stopWhen: steps(100),
  tools: { bash: ai.tool({ inputSchema: ai.jsonSchema(schema), execute: run }) },
  onError: ({ error }) => { console.log('error', error?.name, String(error?.message).slice(0, 200)); process.exitCode = 1; },
});
let text = '';
for await (const piece of result.textStream) text += piece;
console.log('final:', await result.finishReason, text);
