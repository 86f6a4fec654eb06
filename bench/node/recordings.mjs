// Plays the recorded responses of bench/sdk, which are easily misread, to the Vercel AI SDK over loopback,
// without and with the adapter, and prints a page.
//
//   cd PROJECT && npm install ai@7 @ai-sdk/openai@4 @ai-sdk/anthropic zod PACKAGES
//   cp REPOSITORY/bench/node/recordings.mjs . && node recordings.mjs REPOSITORY >REPOSITORY/bench/node/RECORDINGS.md
//
// The recordings and their licences: testdata/recordings/SOURCES.md, bench/sdk/SOURCES.md.
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { detect } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

const [root] = process.argv.slice(2);
const MOST_CALLS = 3;
const read = (file) => gunzipSync(readFileSync(file)).toString().trim().split('\n').map((line) => JSON.parse(line));
const folder = join(root, 'testdata/recordings');
const files = readdirSync(folder).filter((name) => name.endsWith('.jsonl.gz')).map((name) => join(folder, name));
const recordings = new Map([...files, join(root, 'bench/sdk/recordings.jsonl.gz')].flatMap(read).map((one) => [one.id, one]));
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')).version;
console.error = console.warn = () => {};
process.on('unhandledRejection', () => {});

/** Returns the bytes of a case: the recording, cut or changed. */
function bodyOf(given, recording) {
  let body = Buffer.from(recording.body, recording.body_encoding === 'base64' ? 'base64' : 'utf8').toString();
  if (given.cut_before !== undefined) body = body.slice(0, body.indexOf(given.cut_before));
  if (given.replace !== undefined) body = body.replaceAll(...given.replace);
  return body + (given.append ?? '');
}

/** The response that the server gives now. */
let now;
const server = createServer((request, response) => {
  request.resume().on('end', () => {
    now.asked += 1;
    response.writeHead(now.status, { 'content-type': now.type });
    // A dropped connection has no end; what was sent must be on its way before.
    if (now.drops) response.write(now.body, () => setTimeout(() => response.destroy(), 20));
    else response.end(now.body);
  });
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const base = `http://127.0.0.1:${server.address().port}/v1`;
const openai = createOpenAI({ baseURL: base, apiKey: 'x', fetch: tap() });
const anthropic = createAnthropic({ baseURL: base, apiKey: 'x', fetch: tap() });

const ran = [];

/** Returns tools of the names that a body calls. Their inputs are not checked, as with a loose schema. */
function toolsOf(body) {
  const names = [...body.matchAll(/"name": ?"([A-Za-z_]+)"/g)].map(([, name]) => name);
  const one = tool({
    description: 'x',
    inputSchema: jsonSchema({ type: 'object' }),
    execute: async (input) => { ran.push(input); return 'ok'; },
  });
  return Object.fromEntries([...new Set(names)].map((name) => [name, one]));
}

function modelOf(api) {
  if (api.startsWith('anthropic')) return anthropic('m');
  return api.endsWith('responses') ? openai.responses('m') : openai.chat('m');
}

async function once(settings, streams) {
  const options = { prompt: 'Go.', maxRetries: 0, ...settings };
  if (!streams) {
    const result = await generateText(options);
    return `returned (${result.finishReason})`;
  }
  let problem;
  const result = streamText({ ...options, onError: ({ error }) => { problem ??= error; } });
  for await (const _ of result.textStream);
  if (problem !== undefined) throw problem;
  return `returned (${await result.finishReason})`;
}

const lines = [];
let wrong = 0;
for (const { title, cases } of JSON.parse(readFileSync(join(root, 'bench/sdk/cases.json'), 'utf8'))) {
  lines.push('', `## ${title}`, '', '| case | without the adapter | calls | with the adapter | calls |', '|---|---|--:|---|--:|');
  for (const given of cases) {
    const recording = recordings.get(given.id);
    const body = bodyOf(given, recording);
    for (const end of given.ends ?? ['closed']) {
      const streams = recording.streaming || /^(event|data):/m.test(body);
      const cells = [];
      for (const guard of [false, true]) {
        const status = given.status ?? recording.status;
        const type = streams ? 'text/event-stream' : 'application/json';
        now = { body, status, type, drops: end === 'dropped', asked: 0 };
        ran.length = 0;
        const model = modelOf(recording.family);
        const tools = toolsOf(body);
        const endstop = new Endstop({ maxTurns: MOST_CALLS });
        let ending;
        try {
          const settings = guard ? { model: endstop.model(model), ...endstop.hooks() } : { model, stopWhen: stepCountIs(MOST_CALLS) };
          const body = () => once({ tools, ...settings }, streams);
          ending = guard ? await endstop.during(body) : await body();
        } catch (problem) {
          ending = `raised ${problem?.name ?? typeof problem}`;
        }
        if (guard) ending = endstop.outcome.termination;
        // Of a response that is not whole, no call may run.
        const whole = detect(body, { api: recording.api, status }).calls.length;
        const cut = whole === 0 ? ran.length : 0;
        if (guard && (cut > 0 || (given.whole === false && endstop.outcome.isSuccess))) wrong += 1;
        cells.push(`${ending}${cut > 0 ? `, **${cut} cut**` : ''} | ${now.asked}`);
      }
      lines.push(`| ${given.what}${end === 'dropped' ? '; the connection is dropped' : ''} | ${cells.join(' | ')} |`);
    }
  }
}
console.log(`# Recorded responses in the Vercel AI SDK

Written by \`bench/node/recordings.mjs\` with ai ${version('ai')}, @ai-sdk/openai ${version('@ai-sdk/openai')}, @ai-sdk/anthropic
${version('@ai-sdk/anthropic')}. The cases, with their sources and licences, are those of [bench/sdk](../sdk/README.md). A tool of each name that
a response calls is there, and a loop has ${MOST_CALLS} steps at most. \`cut\` counts the tool bodies that ran although no call
was whole. With the adapter, the ending is that of the outcome; \`error_max_turns\` and \`error_no_progress\` are the endings of
a whole call that is repeated.
${lines.join('\n')}

Endings that are wrong with the adapter: ${wrong}.`);
server.closeAllConnections();
process.exit(wrong === 0 ? 0 : 1);
