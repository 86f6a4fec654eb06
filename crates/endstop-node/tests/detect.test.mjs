import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import * as endstop from '@endstop/node';
import { detect, FormatError, ConfigError, response, StreamDecoder } from '@endstop/node';
import { chat, CUT_STREAM, sse, tool } from './bodies.mjs';

test('detect reads every form of a body', () => {
  const body = chat('Hi', { finish: 'length' });
  const bytes = Buffer.from(body);
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  const copy = new Uint8Array(bytes);
  for (const form of [body, bytes, copy, copy.buffer, shared, JSON.parse(body), [bytes.subarray(0, 9), bytes.subarray(9)]]) {
    const found = detect(form);
    assert.equal(found.reason, 'token_limit_reached');
    assert.equal(found.text, 'Hi');
    assert.equal(found.api, 'openai-chat');
    assert.deepEqual({ ...found.usage }, {
      inputTokens: 100, outputTokens: 50, cachedInputTokens: null, cacheWriteTokens: null,
      reasoningTokens: null, totalTokens: 150, estimated: false,
    });
  }
});

test('detections are frozen all the way', () => {
  const found = detect(tool(1, '{"text":"x"}'));
  assert.throws(() => { found.reason = 'stop'; }, TypeError);
  assert.throws(() => { found.calls.push(null); }, TypeError);
  assert.throws(() => { found.calls[0].name = 'other'; }, TypeError);
  assert.throws(() => { found.signal.reason = 'x'; }, TypeError);
  assert.deepEqual(found.calls[0].args, { text: 'x' });
});

test('cut call is never among the calls', () => {
  for (const body of [tool(1, '{"text":"hel', 'length'), tool(1, '{"text":"hel'), tool(1, '[1]'), tool(1, '{"text":"x"}', 'length')]) {
    const found = detect(body);
    assert.equal(found.calls.length, 0);
    assert.equal(found.cutCalls.length, 1);
  }
  assert.equal(detect(tool(1, '{"text":"hel')).cutCalls[0].args, null);
  assert.deepEqual(detect(tool(1, '')).calls[0].args, {});
});

test('unknown format is an error that names the choice', () => {
  assert.throws(() => detect('{"hello":1}'), FormatError);
  assert.throws(() => detect('{}', { api: 'openai-chats' }), (e) => e instanceof ConfigError && /openai-chat/.test(e.message));
  assert.throws(() => detect(new Response('{}')), /await response.text/);
  assert.throws(() => detect(7), /expected bytes/);
  assert.throws(() => detect(null), ConfigError);
});

test('errors have a class and a wait', () => {
  const body = '{"error":{"message":"slow down","type":"x","param":null,"code":null}}';
  const found = detect(body, { status: 429, headers: { 'retry-after': '7' } });
  assert.equal(found.error.kind, 'rate_limit');
  assert.equal(found.error.category, 'retryable');
  assert.equal(found.error.retryAfterMs, 7000);
  assert.equal(detect(body, { status: 429, headers: new Headers({ 'retry-after': '7' }) }).error.retryAfterMs, 7000);
});

test('request tells a cut at the cap', () => {
  const body = tool(1, '{"text":"x"}', 'tool_calls');
  const request = { model: 'm', max_tokens: 50, messages: [] };
  assert.equal(detect(body, { request }).reason, detect(body, { request: JSON.stringify(request) }).reason);
  assert.throws(() => detect(body, { request: '{' }), /invalid `request`/);
});

test('decoder equals detect at every cut', () => {
  const whole = detect(CUT_STREAM);
  for (let at = 0; at <= CUT_STREAM.length; at++) {
    const decoder = new StreamDecoder();
    const deltas = [...decoder.push(CUT_STREAM.subarray(0, at)), ...decoder.push(CUT_STREAM.subarray(at))];
    assert.equal(deltas.map((delta) => delta.text).join(''), 'Hello');
    assert.deepEqual(decoder.finish().toJSON(), whole.toJSON());
    assert.equal(decoder.api, 'openai-chat');
  }
});

test('lost stream is an error and never a success', () => {
  const part = sse([{ choices: [{ delta: { content: 'Hel' } }] }], false);
  for (const reset of [false, true]) {
    const decoder = new StreamDecoder({ api: 'openai-chat' });
    decoder.push(part);
    assert.equal(decoder.complete, false);
    const found = decoder.finish({ reset });
    assert.equal(found.error.kind, 'incomplete_stream');
    assert.equal(found.complete, false);
    assert.deepEqual(decoder.push(part), []);
  }
});

test('described response without a finish is cut', () => {
  assert.equal(response({ text: 'Hi', finish: 'stop' }).reason, 'natural_completion');
  assert.equal(response({ text: 'Hi', finish: null }).error.kind, 'incomplete_stream');
  const call = { id: 'c1', name: 'f', arguments: { a: 1 } };
  assert.deepEqual(response({ finish: 'tool_calls', calls: [call] }).calls[0].args, { a: 1 });
});

test('hostile bodies never break the process', () => {
  const bodies = ['', '[', '\u0000', '{"choices":[]}', '['.repeat(100_000), `data: ${'x'.repeat(200_000)}\n\n`, '{"choices":[{"message":{"content":"\\ud800"},"finish_reason":"stop"}]}'];
  for (const body of bodies) {
    for (const api of [undefined, 'openai-chat', 'anthropic-messages', 'gemini']) {
      try {
        detect(body, { api });
      } catch (problem) {
        assert.ok(problem instanceof endstop.EndstopError, String(problem));
      }
    }
  }
});

test('both entries share their classes', () => {
  const required = createRequire(import.meta.url)('@endstop/node');
  // Marks that Node and the compiler add.
  const marks = ['default', 'module.exports', '__esModule'];
  const names = Object.keys(endstop).filter((name) => !marks.includes(name));
  assert.deepEqual(names.sort(), Object.keys(required).sort());
  for (const name of names) assert.equal(endstop[name], required[name]);
});

test('secrets leave text', () => {
  assert.equal(endstop.redact('bad key: sk-abcdef1234567890'), 'bad key: [redacted]');
  const key = 'my-own-key-value-0123';
  assert.ok(!endstop.redact(`x ${key} y`, [key]).includes(key));
});

test('prices come from the catalogue', () => {
  const price = endstop.price('openai/gpt-4o');
  assert.ok(price.input > 0 && price.output > price.input && price.contextWindow > 1000);
  assert.equal(endstop.price('openai/no-such-model'), null);
  assert.throws(() => endstop.price('gpt-4o'), /provider\/model/);
  assert.equal(endstop.Price.parse('in=3,out=15').cost(1e6, 1e6), 18);
  assert.throws(() => new endstop.Price({ input: -1, output: 1 }), ConfigError);
});

test('part of a response is refused by its name', () => {
  for (const [part, name] of [
    [{ index: 0, message: { content: 'Hi' }, finish_reason: 'stop' }, 'a choice'],
    [{ index: 0, delta: { content: 'Hi' }, finish_reason: null }, 'a choice'],
    [{ role: 'assistant', content: 'Hi' }, 'a message'],
    [[{ role: 'user', content: 'Hi' }], 'a message'],
    [{ type: 'message', role: 'assistant', content: [] }, 'a message'],
    [{ lc: 1, type: 'constructor', id: ['langchain_core', 'messages', 'AIMessage'], kwargs: {} }, 'a message of LangChain'],
    [{ content: { parts: [] }, finishReason: 'STOP' }, 'a candidate'],
    [{ model: 'm', messages: [] }, 'a request'],
    [{ inputTokens: 1, outputTokens: 2 }, 'token usage'],
    [{ type: 'text', text: 'Hi' }, 'a block of content'],
    [{ type: 'tool-call', toolName: 'f' }, 'a tool call'],
  ]) {
    assert.throws(() => detect(part), (e) => e instanceof FormatError && e.message.includes(`this is ${name}, and not a whole response`));
  }
  for (const other of [{ candidates: 3 }, { done: true, message: 'done' }, { bytes: 'aGVsbG8=' }, { event_type: 'click' }]) {
    assert.throws(() => detect(other), (e) => e instanceof FormatError && /not recognised/.test(e.message));
  }
});

test('a list of responses, and one event, are refused', () => {
  const whole = JSON.parse(chat('Hi'));
  for (const list of [[whole, whole], [chat('Hi'), chat('Hi')]]) {
    assert.throws(() => detect(list), (e) => e instanceof FormatError && /a list of several responses/.test(e.message));
    assert.throws(() => new endstop.Run().turn(list), FormatError);
  }
  assert.equal(detect([whole]).text, 'Hi');
  const event = { object: 'chat.completion.chunk', choices: [{ delta: { content: 'Hi' } }] };
  for (const form of [event, JSON.stringify(event)]) {
    assert.throws(() => detect(form), (e) => e instanceof FormatError && /one event of a stream/.test(e.message));
  }
  const { text, complete, error } = detect([event]);
  assert.deepEqual([text, complete, error?.kind], ['Hi', false, 'incomplete_stream']);
});

test('empty body says what to pass, unless a server sent it', () => {
  for (const empty of ['', '  \n', new Uint8Array(), []]) {
    assert.throws(() => detect(empty), (e) => e instanceof FormatError && /the body is empty; give the body/.test(e.message));
  }
  assert.equal(detect('', { status: 503 }).error.status, 503);
  assert.equal(detect('', { status: 200 }).reason, 'error_termination');
  assert.equal(detect('', { api: 'gemini' }).reason, 'error_termination');
  const run = new endstop.Run();
  run.go();
  assert.notEqual(run.turn('').error, null);
  run.close();
});
