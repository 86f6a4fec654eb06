import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { record, Recording, tap } from '@endstop/node/tap';
import { chat, CUT_STREAM } from './bodies.mjs';

const BUSY = '{"error":{"message":"slow down","type":"x","param":null,"code":null}}';
let server;
let url;
/** The bytes of the answer of `as-given`, and their encoding. */
let packed;

/** Answers by the name of the model. */
function answer(request, response) {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const { model } = JSON.parse(Buffer.concat(chunks));
    if (model === 'busy') return response.writeHead(429).end(BUSY);
    if (model === 'stream') return response.end(CUT_STREAM);
    if (model === 'cut') return response.end(CUT_STREAM.subarray(0, 60));
    if (model === 'as-given') return response.writeHead(200, { 'content-encoding': packed[1] }).end(packed[0]);
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

test('no request and no response fails in the tap', async () => {
  const body = chat('Hello', { model: 'm' });
  const paid = () => new Response(body);
  /** Classes of another package: they have what fetch reads, and are of no known class. */
  const request = (given) => ({ url: given, method: 'POST', toString: () => '[object Request]' });
  const hostile = { get url() { throw new Error('no'); } };
  const text = (response) => (typeof response.text === 'function' ? response.text() : response);
  for (const [input, init, expected] of [
    ['/v1/chat/completions', { method: 'POST' }, 'm'],
    ['v1/chat/completions', { method: 'post' }, 'm'],
    [request(url), undefined, 'm'],
    [request('/v1/chat/completions'), undefined, 'm'],
    [new URL(url), { method: 'POST', body: new TextEncoder().encode('{}') }, 'm'],
    [new Request(url, { method: 'POST', body: '{}' }), undefined, 'm'],
    [url, { method: 'POST', body: '{' }, 'm'],
    ['http://[', { method: 'POST' }, undefined],
    [hostile, undefined, undefined],
    [null, { method: 'POST' }, undefined],
    [Symbol.iterator, { method: 'POST' }, undefined],
  ]) {
    const recording = await record(async () => assert.equal(await text(await tap(async () => paid())(input, init)), body));
    assert.equal(recording.last?.model, expected);
  }
  const odd = (status) => Object.defineProperty(new Response(body), 'status', { value: status });
  const read = new Response(body);
  const reader = read.body.getReader();
  for (const response of [odd(999), odd(0), odd(101), odd(600), read, { status: 200, body: 'x', text: async () => body }, { status: 200 }, Response.error()]) {
    await record(async () => assert.equal(await tap(async () => response)(url, { method: 'POST' }), response));
  }
  reader.releaseLock();
  const listener = () => { throw new Error('of the listener'); };
  process.once('warning', () => {});
  const heard = await record(async () => assert.equal(await (await tap(async () => paid())(url, { method: 'POST' })).text(), body), listener);
  assert.equal(heard.last.model, 'm');
});

test('bytes can be read into a buffer of the reader', async () => {
  const body = Buffer.from(chat('Hello', { model: 'm' }));
  const shared = new Uint8Array(body);
  const chunks = [shared.subarray(0, 5), new Uint8Array(0), shared.subarray(5, 9), shared.subarray(9)];
  const inner = async () => new Response(new ReadableStream({ start: (open) => { chunks.forEach((one) => open.enqueue(one)); open.close(); } }));
  for (let again = 0; again < 2; again++) {
    const recording = await record(async () => {
      const response = await tap(inner)(url, { method: 'POST', body: '{}' });
      const reader = response.body.getReader({ mode: 'byob' });
      const parts = [];
      for (let buffer = new ArrayBuffer(7); ;) {
        const { done, value } = await reader.read(new Uint8Array(buffer));
        if (done) break;
        parts.push(Buffer.from(value));
        buffer = value.buffer;
      }
      assert.ok(Buffer.concat(parts).equals(body));
    });
    assert.equal(recording.last.text, 'Hello');
  }
});

test('facts of a response survive, also in its clone', async () => {
  await record(async () => {
    const response = await post(tap(), 'gpt-4o');
    const copy = response.clone();
    assert.deepEqual([copy.url, copy.redirected, copy.type], [url, false, 'basic']);
    assert.equal(await copy.text(), await response.text());
  });
});

test('compressed bodies pass as without the tap', async () => {
  const body = chat('Hello', { model: 'm' });
  for (const [bytes, encoding, reason] of [
    [deflateSync(body), 'deflate', 'natural_completion'],
    [deflateRawSync(body), 'deflate', 'natural_completion'],
    [gzipSync(gzipSync(body)), 'gzip, gzip', 'natural_completion'],
    [gzipSync(gzipSync(body)), 'gzip', 'error_termination'],
    [deflateRawSync(body), 'identity', 'error_termination'],
  ]) {
    packed = [bytes, encoding];
    const plain = Buffer.from(await (await post(fetch, 'as-given')).arrayBuffer());
    const recording = await record(async () => {
      assert.ok(Buffer.from(await (await post(tap(), 'as-given')).arrayBuffer()).equals(plain));
    });
    assert.equal(recording.last.reason, reason, encoding);
  }
});

test('the innermost recording gets the response', async () => {
  const fetch = tap();
  let inner;
  let late;
  const outer = await record(async () => {
    await (await post(fetch, 'first')).text();
    inner = await record(async () => {
      late = await post(fetch, 'second');
    });
    // A body that is read elsewhere belongs to where its request was sent.
    await late.text();
    await (await post(fetch, 'third')).text();
  });
  assert.deepEqual(inner.detections.map((found) => found.model), ['second']);
  assert.deepEqual(outer.detections.map((found) => found.model), ['first', 'third']);
});

test('recording of a fetch takes precedence', async () => {
  const own = new Recording();
  const other = await record(async () => (await post(tap(undefined, own), 'x')).text());
  assert.equal(own.last.model, 'x');
  assert.equal(other.last, null);
});
