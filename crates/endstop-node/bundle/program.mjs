// The program that `bundlers` bundles: three entries of the package, over a server on loopback.
import { createServer } from 'node:http';
import { detect, EndstopStopped } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';

const body = JSON.stringify({
  object: 'chat.completion',
  model: 'gpt-4o-mini',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Half of an ans' }, finish_reason: 'length' }],
  usage: { prompt_tokens: 10, completion_tokens: 4 },
});

async function main() {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.setHeader('content-type', 'application/json').end(body));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const send = tap();
  // A model of the AI SDK that drops the finish value: the run knows it only if both entries share the
  // recording of the tap.
  const model = {
    specificationVersion: 'v2',
    async doGenerate() {
      const url = `http://127.0.0.1:${server.address().port}/v1/chat/completions`;
      const answer = await (await send(url, { method: 'POST', body: '{}' })).json();
      const text = answer.choices[0].message.content;
      return { content: [{ type: 'text', text }], finishReason: 'stop', usage: {} };
    },
  };
  const endstop = new Endstop({ maxTurns: 3 });
  let thrown = null;
  try {
    await endstop.during(() => endstop.model(model).doGenerate({}));
  } catch (problem) {
    thrown = problem;
  }
  server.closeAllConnections();
  server.close();
  const ending = endstop.outcome.termination;
  console.log(JSON.stringify({ reason: detect(body).reason, ending, isStopped: thrown instanceof EndstopStopped }));
}

main();
