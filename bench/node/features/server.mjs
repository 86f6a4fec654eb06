// A scripted model server on 127.0.0.1: OpenAI chat completions and responses, streamed or not.
//
// A model's name is that of its script; the n-th request to it gets the n-th step, and the last step
// repeats; a function makes a step of the request. A step: { text, calls: [[name, arguments, id?]], finish, status, hang, reset, refusal, cached }.
// Each answer has 100 prompt and 50 generated tokens; a `cached` one has a million prompt tokens, of which 900,000 are of a cache.

import { createServer } from 'node:http';

/** Dollars per million tokens, as the scenarios give them to Endstop. */
export const PRICE = 'in=3,out=15,cached=0.3';
const [IN, OUT] = [100, 50];
/** The prompt tokens of a step, and those of them that were read from a cache. */
const promptOf = ({ cached = false }) => (cached ? [1e6, 9e5] : [IN, 0]);

/** The dollars that a step is billed with. */
function billOf(step) {
  const [given, cached] = promptOf(step);
  return ((given - cached) * 3 + cached * 0.3 + OUT * 15) / 1e6;
}

/** Starts a server. `scripts` maps names to steps, and may grow. */
export async function serve(scripts) {
  let count = {};
  let bill = { requests: 0, dollars: 0, aborted: 0, bodies: [] };
  const server = createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString() || '{}');
      const name = String(body.model);
      const steps = scripts[name] ?? scripts.default ?? [{ text: 'Done.' }];
      const n = (count[name] = (count[name] ?? 0) + 1);
      const step = typeof steps === 'function' ? steps(body) : steps[Math.min(n, steps.length) - 1];
      bill.requests += 1;
      bill.bodies.push(body);
      response.on('close', () => { if (!response.writableFinished) bill.aborted += 1; });
      const status = step.status ?? 200;
      if (status === 200) bill.dollars += billOf(step);
      answer(request.url, body, step, n, response);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    /** Returns what was sent and billed since the last call, and forgets it. The scripts begin again, or continue. */
    take({ continues = false } = {}) {
      const taken = bill;
      if (!continues) count = {};
      bill = { requests: 0, dollars: 0, aborted: 0, bodies: [] };
      return taken;
    },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

function answer(url, body, step, n, response) {
  const { status = 200, hang = false } = step;
  if (hang && body.stream !== true) return; // Until the client gives up.
  if (status !== 200) {
    const error = { message: step.text ?? 'no', type: 'x', param: null, code: null };
    return response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
  }
  const calls = (step.calls ?? []).map(([name, args, id], at) => ({ name, args, id: id ?? `call_${body.model}_${n}_${at}` }));
  const finish = step.finish === undefined ? (calls.length > 0 ? 'tool_calls' : 'stop') : step.finish;
  const made = (url.includes('/responses') ? responses : chat)(body, step, calls, finish, n);
  if (body.stream !== true) return response.setHeader('content-type', 'application/json').end(JSON.stringify(made.whole));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const events = made.events.map((event) => `${event.type === undefined ? '' : `event: ${event.type}\n`}data: ${JSON.stringify(event)}\n\n`);
  if (made.done) events.push('data: [DONE]\n\n');
  if (!hang) return response.end(events.join(''));
  // The first words, and then nothing: the client must give up.
  const first = made.events.findIndex((event) => event.type === 'response.output_text.delta');
  response.write(events.slice(0, Math.max(3, first + 2)).join(''));
}

function chat(body, step, calls, finish, n) {
  const [given, cached_tokens] = promptOf(step);
  const usage = { prompt_tokens: given, prompt_tokens_details: { cached_tokens }, completion_tokens: OUT, total_tokens: given + OUT };
  const tool = calls.map((call, index) => ({ index, id: call.id, type: 'function', function: { name: call.name, arguments: call.args } }));
  const base = { id: `r${n}`, created: 1, model: body.model };
  const message = { role: 'assistant', content: step.text ?? null, refusal: step.refusal ?? null, ...(tool.length > 0 ? { tool_calls: tool.map(({ index, ...call }) => call) } : {}) };
  const whole = { ...base, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: finish, logprobs: null }], usage };
  const chunk = (delta, end = null) => ({ ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: end }] });
  const events = [chunk({ role: 'assistant', content: '' }), ...(step.text ?? '').split(/(?<= )/).filter(Boolean).map((word) => chunk({ content: word }))];
  if (tool.length > 0) events.push(chunk({ tool_calls: tool }));
  if (finish !== null) events.push(chunk({}, finish));
  if (finish !== null && body.stream_options?.include_usage) events.push({ ...base, object: 'chat.completion.chunk', choices: [], usage });
  return { whole, events, done: finish !== null };
}

function responses(body, step, calls, finish, n) {
  const isCut = finish === 'length' || finish === 'content_filter';
  const status = isCut ? 'incomplete' : 'completed';
  const output = [];
  if (step.text !== undefined || calls.length === 0) {
    const content = [{ type: 'output_text', text: step.text ?? '', annotations: [], logprobs: [] }];
    output.push({ type: 'message', id: `msg_${n}`, role: 'assistant', status, content });
  }
  for (const call of calls) output.push({ type: 'function_call', id: `fc_${n}_${call.id}`, call_id: call.id, name: call.name, arguments: call.args, status });
  const [given, cached_tokens] = promptOf(step);
  const usage = { input_tokens: given, input_tokens_details: { cached_tokens }, output_tokens: OUT, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: given + OUT };
  const whole = {
    id: `resp_${body.model}_${n}`, object: 'response', created_at: 1, model: body.model, status, error: null,
    incomplete_details: isCut ? { reason: finish === 'length' ? 'max_output_tokens' : 'content_filter' } : null,
    instructions: null, metadata: {}, output, parallel_tool_calls: true, temperature: 1, tool_choice: 'auto', tools: [], top_p: 1, usage,
  };
  let sequence = 0;
  const events = [];
  const event = (type, fields) => events.push({ type, sequence_number: sequence++, ...fields });
  event('response.created', { response: { ...whole, status: 'in_progress', output: [], usage: null } });
  output.forEach((item, at) => {
    event('response.output_item.added', { output_index: at, item: { ...item, status: 'in_progress', ...(item.type === 'message' ? { content: [] } : { arguments: '' }) } });
    if (item.type === 'message') {
      event('response.content_part.added', { item_id: item.id, output_index: at, content_index: 0, part: { type: 'output_text', text: '', annotations: [] } });
      for (const word of item.content[0].text.split(/(?<= )/).filter(Boolean)) {
        event('response.output_text.delta', { item_id: item.id, output_index: at, content_index: 0, delta: word, logprobs: [] });
      }
    } else {
      event('response.function_call_arguments.delta', { item_id: item.id, output_index: at, delta: item.arguments });
      event('response.function_call_arguments.done', { item_id: item.id, output_index: at, arguments: item.arguments });
    }
    event('response.output_item.done', { output_index: at, item });
  });
  if (finish !== null) event(`response.${status}`, { response: whole });
  return { whole, events, done: false };
}
