import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { record, Recording, tap } from '@endstop/node/tap';
import { chat, CUT_STREAM } from './bodies.mjs';

const BUSY = '{"error":{"message":"slow down","type":"x","param":null,"code":null}}';
let server;
let url;

/** Answers by the name of the model. */
function answer(request, response) {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const { model } = JSON.parse(Buffer.concat(chunks));
    if (model === 'busy') return response.writeHead(429).end(BUSY);
    if (model === 'stream') return response.end(CUT_STREAM);
    if (model === 'cut') return response.end(CUT_STREAM.subarray(0, 60));
    if (model === 'packed') return response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(chat('Hello', { model })));
    if (model === 'reset') {
      response.writeHead(200, { 'content-length': CUT_STREAM.length });
      // The headers must be on their way before the connection breaks.
      return response.write(CUT_STREAM.subarray(0, 60), () => response.destroy());
    }
    return response.end(chat('Hello', { model }));
  });
}

before(async () => {
  server = createServer(answer);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${server.address().port}/v1/chat/completions`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const post = (fetch, model, to = url) => fetch(to, { method: 'POST', body: JSON.stringify({ model }) });

test('bytes pass unchanged and are decoded', async () => {
  const recording = await record(async (live) => {
    const fetch = tap();
    const whole = await post(fetch, 'gpt-4o');
    assert.equal(whole.url, url);
    assert.equal(await whole.text(), chat('Hello', { model: 'gpt-4o' }));
    assert.equal(live.last.text, 'Hello');
    assert.equal(await (await post(fetch, 'packed')).text(), chat('Hello', { model: 'packed' }));
    assert.equal(live.last.model, 'packed');
    const streamed = Buffer.from(await (await post(fetch, 'stream')).arrayBuffer());
    assert.ok(streamed.equals(CUT_STREAM));
  });
  assert.equal(recording.last.reason, 'token_limit_reached');
  assert.deepEqual(recording.take().map((found) => found.text), ['Hello', 'Hello', 'Hello']);
  assert.equal(recording.last, null);
});

test('lost stream and error are reported', async () => {
  const recording = await record(async () => {
    const fetch = tap();
    await (await post(fetch, 'cut')).text();
    await assert.rejects(async () => (await post(fetch, 'reset')).text());
    assert.equal(await (await post(fetch, 'busy')).text(), BUSY);
  });
  const kinds = recording.detections.map((found) => found.error?.kind);
  assert.deepEqual(kinds, ['incomplete_stream', 'incomplete_stream', 'rate_limit']);
});

test('stream that the client leaves is cut', async () => {
  const recording = await record(async () => {
    const response = await post(tap(), 'stream');
    await response.body.cancel();
  });
  assert.equal(recording.last.error.kind, 'incomplete_stream');
});

test('concurrent runs share a client', async () => {
  const fetch = tap();
  const one = (model) => record(async () => {
    for (let n = 0; n < 5; n++) await (await post(fetch, model)).text();
  });
  const models = Array.from({ length: 8 }, (_, n) => `model-${n}`);
  const recordings = await Promise.all(models.map(one));
  recordings.forEach((recording, n) => {
    assert.deepEqual(recording.detections.map((found) => found.model), Array(5).fill(models[n]));
  });
});

test('other requests are left alone', async () => {
  const seen = [];
  const fetch = tap();
  await (await post(fetch, 'a')).text();
  const recording = await record(async () => {
    await (await post(fetch, 'b', url.replace('/chat/completions', '/embeddings'))).text();
    await (await post(fetch, 'c')).text();
  }, (found) => seen.push(found.model));
  assert.deepEqual(seen, ['c']);
  assert.equal(recording.detections.length, 1);
});

test('another spelling of a path is that path', async () => {
  for (const path of ['/v1/chat/%63ompletions', '/v1/chat%2Fcompletions', '/v1//chat//completions', '/v1/Chat/Completions']) {
    const recording = await record(async () => (await post(tap(), 'm', url.replace('/v1/chat/completions', path))).text());
    assert.equal(recording.last?.model, 'm', path);
  }
});

test('recording of a fetch takes precedence', async () => {
  const own = new Recording();
  const other = await record(async () => (await post(tap(undefined, own), 'x')).text());
  assert.equal(own.last.model, 'x');
  assert.equal(other.last, null);
});
