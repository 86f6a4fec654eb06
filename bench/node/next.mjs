// Runs the route of the page in Next.js over the scripted server: an answer, a cut answer, a client that
// leaves, and the edge runtime, which must be refused with the reason.
//
//   npm install next@16 react react-dom ai@7 @ai-sdk/openai@4 target/node/pack/*.tgz   # in LAB
//   node bench/node/next.mjs LAB
//
// Prints a line for each, and exits with 1 if one is wrong.
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { serve } from './features/server.mjs';

const lab = process.argv[2];
const FILES = {
  'next.config.mjs': "export default { serverExternalPackages: ['@endstop/node'] };\n",
  'app/layout.jsx': 'export default function Layout({ children }) { return <html><body>{children}</body></html>; }\n',
  'app/page.jsx': 'export default function Page() { return <p>Hi.</p>; }\n',
  'app/api/chat/route.js': `
import { createOpenAI } from '@ai-sdk/openai';
import { Endstop } from '@endstop/node/ai-sdk';
import { convertToModelMessages, streamText } from 'ai';
const openai = createOpenAI();
export async function POST(request) {
  const { messages, model } = await request.json();
  const endstop = new Endstop({ maxTurns: 25, signal: request.signal, onEnd: (outcome) => console.log('ended as ' + outcome.termination) });
  const prompt = await convertToModelMessages(messages);
  return endstop.during(() =>
    streamText({ model: endstop.model(openai.chat(model)), messages: prompt, ...endstop.hooks({ onError: () => {} }) }).toUIMessageStreamResponse(),
  );
}
`,
  'app/api/edge/route.js': `
import { detect } from '@endstop/node';
export const runtime = 'edge';
export async function GET() { return new Response(detect('{}').reason); }
`,
};
for (const [name, text] of Object.entries(FILES)) {
  mkdirSync(join(lab, dirname(name)), { recursive: true });
  writeFileSync(join(lab, name), text);
}

const server = await serve({ text: [{ text: 'All is done.' }], cut: [{ text: 'Ha', finish: 'length' }], hang: [{ text: 'a b c d e', hang: true }] });
const environment = { ...process.env, OPENAI_API_KEY: 'x', OPENAI_BASE_URL: server.url, NEXT_TELEMETRY_DISABLED: '1' };
const child = spawn(join(lab, 'node_modules/.bin/next'), ['dev', '-p', '3911'], { cwd: lab, env: environment, detached: true });
let log = '';
for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { log += text; });
const url = 'http://127.0.0.1:3911';
/** Waits until a condition holds, for a minute at most. */
async function until(condition) {
  for (let tries = 0; tries < 240 && !(await condition()); tries++) await new Promise((resolve) => setTimeout(resolve, 250));
}
await until(() => fetch(url).then(() => true, () => false));
const chat = (model, signal) => fetch(`${url}/api/chat`, {
  method: 'POST',
  signal,
  body: JSON.stringify({ model, messages: [{ id: 'a', role: 'user', parts: [{ type: 'text', text: 'Hi.' }] }] }),
});
let wrong = 0;
const report = (name, isRight) => {
  wrong += isRight ? 0 : 1;
  console.log(`${isRight ? 'ok    ' : 'WRONG '} ${name}`);
};
for (const [model, ending] of [['text', 'stop'], ['cut', 'error_output_truncated']]) {
  report(`${model}: ${ending}`, (await (await chat(model)).text()).includes(`"data-endstop","data":{"termination":"${ending}"`));
}
const left = new AbortController();
const reader = (await chat('hang', left.signal)).body.getReader();
await reader.read();
left.abort();
await until(() => log.includes('ended as cancelled'));
report('client leaves: cancelled', log.includes('ended as cancelled'));
await fetch(`${url}/api/edge`).catch(() => {});
await until(() => log.includes('LoadError'));
report('edge runtime: refused with the reason', /LoadError.*runtime = 'nodejs'/.test(log));
process.kill(-child.pid);
server.close();
process.exit(wrong === 0 ? 0 : 1);
