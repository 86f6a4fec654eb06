// Measures what a call from Node costs: node --expose-gc bench/node/costs.mjs, in a project with the package.
//
// Prints microseconds of processor time a call, the best of several rounds, and the memory over many turns.
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

async function best(name, count, work) {
  let least = Infinity;
  for (let round = 0; round < 7; round++) {
    const began = process.cpuUsage();
    work(count);
    const { user, system } = process.cpuUsage(began);
    least = Math.min(least, (user + system) / count);
    await pause();
  }
  console.log(`${name.padEnd(48)} ${least.toFixed(2).padStart(9)} µs`);
}

const each = (work) => (count) => { for (let n = 0; n < count; n++) work(n); };
console.log(`bodies of ${small.length} and ${large.length} bytes`);
await best('JSON.parse of the small body', 5000, each(() => JSON.parse(small)));
await best('detect(bytes), small', 2000, each(() => detect(small)));
await best('detect(object), small', 2000, each(() => detect(JSON.parse(small))));
await best('detect(bytes), with a tool call', 2000, each(() => detect(calling)));
await best('detect(bytes), large', 50, each(() => detect(large)));
const decoder = new StreamDecoder({ api: 'openai-chat' });
await best('push of an event of a stream', 5000, each(() => decoder.push(event)));
const turns = (options) => (count) => {
  const run = new Run({ limits: { maxTurns: null, maxUnproductiveTurns: null }, ...options });
  for (let n = 0; n < count; n++) {
    run.ask();
    for (const call of run.turn(calling).calls) run.result(call, `result ${n}`);
  }
};
await best('a turn of a guest: ask, turn, result', 2000, turns({}));
await best('the same with a policy in JavaScript', 2000, turns({ policy: policy('none', () => false) }));
await best('a run of two turns', 500, each(() => {
  const run = new Run();
  run.go();
  run.result(run.turn(calling).calls[0], 'x');
  run.go();
  run.turn(small);
  run.close();
}));
if (globalThis.gc !== undefined) {
  const rss = async () => {
    for (let n = 0; n < 5; n++) { globalThis.gc(); await pause(); }
    return process.memoryUsage().rss / 1e6;
  };
  const runs = async (count) => {
    for (let n = 0; n < count; n++) {
      const run = new Run();
      run.go();
      run.result(run.turn(detect(calling)).calls[0], 'x');
      run.go();
      run.turn(small);
      run.close();
      if (n % 100 === 0) await pause();
    }
  };
  await runs(5_000);
  const before = await rss();
  await runs(50_000);
  console.log(`memory: ${before.toFixed(1)} MB after 10,000 turns, ${(await rss()).toFixed(1)} MB after 100,000 more`);
}
