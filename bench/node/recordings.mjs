// Plays recorded responses that are easily misread to the Vercel AI SDK over loopback, in its current and its
// lowest supported version, without and with the adapter, and prints a page.
//
//   cd PROJECT && npm install ai-7@npm:ai@7 openai-7@npm:@ai-sdk/openai@4 anthropic-7@npm:@ai-sdk/anthropic@4 \
//     ai-5@npm:ai@5 openai-5@npm:@ai-sdk/openai@2 anthropic-5@npm:@ai-sdk/anthropic@2 zod PACKAGES
//   cp REPOSITORY/bench/node/recordings.mjs . && node recordings.mjs REPOSITORY >REPOSITORY/bench/node/RECORDINGS.md
//
// The cases are those of bench/sdk, most of which are streams, and those of plain.json. The recordings and their
// licences: testdata/recordings/SOURCES.md, bench/sdk/SOURCES.md.
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { detect } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';

const [root] = process.argv.slice(2);
const MOST_CALLS = 3;
const read = (file) => gunzipSync(readFileSync(file)).toString().trim().split('\n').map((line) => JSON.parse(line));
const folder = join(root, 'testdata/recordings');
const files = readdirSync(folder).filter((name) => name.endsWith('.jsonl.gz')).map((name) => join(folder, name));
const recordings = new Map([...files, join(root, 'bench/sdk/recordings.jsonl.gz')].flatMap(read).map((one) => [one.id, one]));
const cases = (file) => JSON.parse(readFileSync(join(root, file), 'utf8'));
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

/** Loads a major version of the SDK with its providers, which are installed under names of their own. */
async function load(major) {
  const [ai, { createOpenAI }, { createAnthropic }] = await Promise.all(['ai', 'openai', 'anthropic'].map((name) => import(`${name}-${major}`)));
  const settings = { baseURL: base, apiKey: 'x', fetch: tap() };
  const versions = ['ai', 'openai', 'anthropic'].map((name) => {
    const { name: own, version } = JSON.parse(readFileSync(`node_modules/${name}-${major}/package.json`, 'utf8'));
    return `${own} ${version}`;
  });
  return { major, ai, openai: createOpenAI(settings), anthropic: createAnthropic(settings), versions };
}
const sdks = [await load(7), await load(5)];

const ran = [];

/** Returns tools of the names that a body calls. Their inputs are not checked, as with a loose schema. */
function toolsOf({ jsonSchema, tool }, body) {
  const names = [...body.matchAll(/"name": ?"([A-Za-z_]+)"/g)].map(([, name]) => name);
  const one = tool({
    description: 'x',
    inputSchema: jsonSchema({ type: 'object' }),
    execute: async (input) => { ran.push(input); return 'ok'; },
  });
  return Object.fromEntries([...new Set(names)].map((name) => [name, one]));
}

function modelOf({ openai, anthropic }, api) {
  if (api.startsWith('anthropic')) return anthropic('m');
  return api.endsWith('responses') ? openai.responses('m') : openai.chat('m');
}

async function once({ generateText, streamText }, settings, streams) {
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

/** Plays a response once, and returns the cell of the table. */
async function play(sdk, guard, given, { recording, body, streams, drops }) {
  const status = given.status ?? recording.status;
  now = { body, status, type: streams ? 'text/event-stream' : 'application/json', drops, asked: 0 };
  ran.length = 0;
  const model = modelOf(sdk, recording.family);
  const tools = toolsOf(sdk.ai, body);
  const endstop = new Endstop({ maxTurns: MOST_CALLS });
  const settings = guard ? { model: endstop.model(model), ...endstop.hooks() } : { model, stopWhen: sdk.ai.stepCountIs(MOST_CALLS) };
  const work = () => once(sdk.ai, { tools, ...settings }, streams);
  let ending;
  try {
    ending = guard ? await endstop.during(work) : await work();
  } catch (problem) {
    ending = `raised ${problem?.name ?? typeof problem}`;
  }
  if (guard) ending = endstop.outcome.termination;
  // No call of a response that is not complete may run.
  const calls = detect(body, { api: recording.api, status }).calls.length;
  const cut = given.whole === false || calls === 0 ? ran.length : 0;
  // A complete answer without calls must be a success, and an incomplete one must not be one.
  const isAnswer = given.whole === true && given.calls === undefined;
  if (guard && (cut > 0 || (given.whole === false && endstop.outcome.isSuccess) || (isAnswer && !endstop.outcome.isSuccess))) {
    wrong += 1;
    process.stderr.write(`${sdk.versions[0]}: ${given.key} ended as ${ending}, ${cut} tool bodies ran\n`);
  }
  return `${ending}, ${now.asked}${cut > 0 ? `, **${cut} cut**` : ''}`;
}

const lines = [];
let wrong = 0;
const head = sdks.map(({ major }) => `ai ${major} | ai ${major}, adapter`).join(' | ');
for (const { title, cases: all } of [...cases('bench/node/plain.json'), ...cases('bench/sdk/cases.json')]) {
  lines.push('', `## ${title}`, '', `| case | form | ${head} |`, `|---|---|${'---|---|'.repeat(sdks.length)}`);
  for (const given of all) {
    const recording = recordings.get(given.id);
    if (recording === undefined) throw new Error(`no recording ${given.id}`);
    const body = bodyOf(given, recording);
    const streams = recording.streaming || /^(event|data):/m.test(body);
    for (const end of given.ends ?? ['closed']) {
      const drops = end === 'dropped';
      const cells = [];
      for (const sdk of sdks) {
        for (const guard of [false, true]) cells.push(await play(sdk, guard, given, { recording, body, streams, drops }));
      }
      const what = `${given.what}${drops ? '; the connection is dropped' : ''}`;
      lines.push(`| ${what} | ${streams ? 'stream' : 'plain'} | ${cells.join(' | ')} |`);
    }
  }
}
console.log(`# Recorded responses in the Vercel AI SDK

Written by \`bench/node/recordings.mjs\` with ${sdks.map(({ versions }) => versions.join(', ')).join('; and with\n')}.
The cases, with their sources and licences, are those of [bench/sdk](../sdk/README.md) and of \`plain.json\`. A tool of each name that
a response calls is there, and a loop has ${MOST_CALLS} steps at most. Each cell has the ending and the model calls made; \`cut\` counts
the tool bodies that ran although the response was not complete. With the adapter, the ending is that of the outcome;
\`error_max_turns\` and \`error_no_progress\` are the endings of a complete call that is repeated.
${lines.join('\n')}

Endings that are wrong with the adapter: ${wrong}.`);
server.closeAllConnections();
process.exit(wrong === 0 ? 0 : 1);
