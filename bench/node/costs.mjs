// Measures what a call from Node costs: node --expose-gc bench/node/costs.mjs, in a project with the package.
//
// Prints microseconds of processor time a call, the best and the median of several rounds; the same in worker
// threads; and the memory over many turns and many threads.
import { loadavg } from 'node:os';
import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { detect, Run, StreamDecoder, policy } from '@endstop/node';

const chat = (text, calls, finish) => JSON.stringify({
  object: 'chat.completion', model: 'gpt-4o-mini',
  choices: [{ index: 0, message: { role: 'assistant', content: text, tool_calls: calls }, finish_reason: finish }],
  usage: { prompt_tokens: 100, completion_tokens: 50 },
});
const CALL = [{ id: 'c1', type: 'function', function: { name: 'echo', arguments: '{"text":"x"}' } }];
const small = Buffer.from(chat('Hello.', undefined, 'stop'));
const large = Buffer.from(chat('word '.repeat(20_000), undefined, 'stop'));
const calling = Buffer.from(chat(null, CALL, 'tool_calls'));
const event = Buffer.from(`data: ${JSON.stringify({ choices: [{ delta: { content: 'word ' } }] })}\n\n`);
const pause = () => new Promise(setImmediate);

const ROUNDS = 9;

/** Returns the processor time of the process since `began`, in microseconds. */
function spent(began) {
  const { user, system } = process.cpuUsage(began);
  return user + system;
}

function report(name, rounds) {
  const sorted = [...rounds].sort((a, b) => a - b);
  const [least, median] = [sorted[0], sorted[sorted.length >> 1]].map((one) => one.toFixed(2).padStart(9));
  console.log(`${name.padEnd(48)} ${least} ${median} µs`);
}

async function measure(name, count, work) {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    const began = process.cpuUsage();
    work(count);
    rounds.push(spent(began) / count);
    await pause();
  }
  report(name, rounds);
}

/** Makes runs of two turns, and lets the collector work from time to time. */
async function runs(count) {
  for (let n = 0; n < count; n++) {
    const run = new Run();
    run.go();
    run.result(run.turn(detect(calling)).calls[0], 'x');
    run.go();
    run.turn(small);
    if (run.close().termination !== 'stop') throw new Error('a run did not end as stop');
    if (n % 100 === 0) await pause();
  }
}
if (!isMainThread) {
  await runs(workerData);
  process.exit();
}

const each = (work) => (count) => { for (let n = 0; n < count; n++) work(n); };
console.log(`Node ${process.version}, load ${loadavg()[0].toFixed(1)}, bodies of ${small.length} and ${large.length} bytes`);
console.log(`${''.padEnd(48)} ${'best'.padStart(9)} ${'median'.padStart(9)}`);
await measure('JSON.parse of the small body', 5000, each(() => JSON.parse(small)));
await measure('detect(bytes), small', 2000, each(() => detect(small)));
await measure('detect(object), small', 2000, each(() => detect(JSON.parse(small))));
await measure('detect(bytes), with a tool call', 2000, each(() => detect(calling)));
await measure('detect(bytes), large', 50, each(() => detect(large)));
const decoder = new StreamDecoder({ api: 'openai-chat' });
await measure('push of an event of a stream', 5000, each(() => decoder.push(event)));
const turns = (options) => (count) => {
  const run = new Run({ limits: { maxTurns: null, maxUnproductiveTurns: null }, ...options });
  for (let n = 0; n < count; n++) {
    run.ask();
    for (const call of run.turn(calling).calls) run.result(call, `result ${n}`);
  }
};
await measure('a turn of a guest: ask, turn, result', 2000, turns({}));
await measure('the same with a policy in JavaScript', 2000, turns({ policy: policy('none', () => false) }));
await measure('a run of two turns', 500, each(() => {
  const run = new Run();
  run.go();
  run.result(run.turn(calling).calls[0], 'x');
  run.go();
  run.turn(small);
  run.close();
}));
/** Makes runs in threads at the same time, each with a thread of its own. */
async function threads(count, each) {
  await Promise.all(Array.from({ length: count }, () => new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: each });
    worker.once('error', reject);
    worker.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`a thread ended with ${code}`))));
  })));
}
for (const count of [1, 4]) {
  const rounds = [];
  for (let round = 0; round < 3; round++) {
    const began = process.cpuUsage();
    await threads(count, 2000);
    rounds.push(spent(began) / (count * 2000));
  }
  report(`a run of two turns, ${count} worker thread${count === 1 ? '' : 's'}, with its start`, rounds);
}
if (globalThis.gc !== undefined) {
  const rss = async () => {
    for (let n = 0; n < 5; n++) { globalThis.gc(); await pause(); }
    return process.memoryUsage().rss / 1e6;
  };
  await runs(5_000);
  const before = await rss();
  await runs(50_000);
  console.log(`memory: ${before.toFixed(1)} MB after 10,000 turns, ${(await rss()).toFixed(1)} MB after 100,000 more`);
  for (let n = 0; n < 5; n++) await threads(4, 50);
  const between = await rss();
  for (let n = 0; n < 50; n++) await threads(4, 50);
  console.log(`memory: ${between.toFixed(1)} MB after 20 worker threads, ${(await rss()).toFixed(1)} MB after 200 more`);
}
