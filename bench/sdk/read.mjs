// Reads responses with the Node SDKs of OpenAI and Anthropic, as their documentation does.
//
//     node read.mjs < jobs.jsonl > seen.jsonl
//
// The jobs and the results are those of read.py.
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { createInterface } from 'node:readline';

const nothing = () => ({ value: null, detail: null, text: '', refusal: '', arguments: [], events: [] });

function chatMessage(seen, completion) {
  // The SDK returns a body without choices unchanged.
  const choice = completion.choices?.[0];
  if (!choice) return;
  seen.value = choice.finish_reason;
  const message = choice.message;
  if (!message) return;
  seen.text = message.content ?? '';
  seen.refusal = message.refusal ?? '';
  seen.arguments = (message.tool_calls ?? []).map((call) => call.function.arguments);
}

async function chat(client, job, seen) {
  const completions = client.chat.completions;
  if (job.way === 'create') {
    chatMessage(seen, await completions.create(job.request));
  } else if (job.way === 'helper') {
    chatMessage(seen, await completions.stream(job.request).finalChatCompletion());
  } else {
    const calls = new Map();
    for await (const chunk of await completions.create({ ...job.request, stream: true })) {
      for (const choice of chunk.choices) {
        seen.value = choice.finish_reason || seen.value;
        seen.text += choice.delta.content ?? '';
        seen.refusal += choice.delta.refusal ?? '';
        for (const call of choice.delta.tool_calls ?? []) {
          calls.set(call.index, (calls.get(call.index) ?? '') + (call.function?.arguments ?? ''));
        }
        seen.arguments = [...calls.values()];
      }
    }
  }
}

function response(seen, whole) {
  seen.value = whole.status ?? null;
  seen.detail = whole.error?.code ?? whole.incomplete_details?.reason ?? null;
  seen.text = whole.output_text ?? '';
  for (const item of whole.output) {
    if (item.type === 'function_call') seen.arguments.push(item.arguments);
    for (const part of item.type === 'message' ? item.content : []) {
      if (part.type === 'refusal') seen.refusal += part.refusal;
    }
  }
}

async function responses(client, job, seen) {
  if (job.way === 'create') {
    response(seen, await client.responses.create(job.request));
  } else if (job.way === 'helper') {
    response(seen, await client.responses.stream(job.request).finalResponse());
  } else {
    for await (const event of await client.responses.create({ ...job.request, stream: true })) {
      if (event.type === 'response.output_text.delta') seen.text += event.delta;
      else if (event.type === 'response.refusal.delta') seen.refusal += event.delta;
      else if (event.type === 'response.output_item.done' && event.item.type === 'function_call') {
        seen.arguments.push(event.item.arguments);
      } else if (event.type === 'error') seen.events.push(event.type);
      else if (['response.completed', 'response.incomplete', 'response.failed'].includes(event.type)) {
        const last = nothing();
        response(last, event.response);
        seen.value = last.value;
        seen.detail = last.detail;
      }
    }
  }
}

function message(seen, whole) {
  seen.value = whole.stop_reason;
  for (const block of whole.content) {
    if (block.type === 'text') seen.text += block.text;
    else if (block.type === 'tool_use') seen.arguments.push(block.input);
  }
}

async function messages(client, job, seen) {
  const request = { max_tokens: 1024, ...job.request };
  if (job.way === 'create') {
    message(seen, await client.messages.create(request));
  } else if (job.way === 'helper') {
    message(seen, await client.messages.stream(request).finalMessage());
  } else {
    const calls = new Map();
    for await (const event of await client.messages.create({ ...request, stream: true })) {
      if (event.type === 'content_block_start' && event.content_block.type === 'tool_use') {
        calls.set(event.index, '');
      } else if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') {
        seen.text += event.delta.text;
      } else if (event.type === 'content_block_delta' && event.delta.type === 'input_json_delta') {
        if (calls.has(event.index)) calls.set(event.index, calls.get(event.index) + event.delta.partial_json);
      } else if (event.type === 'message_delta') {
        seen.value = event.delta.stop_reason || seen.value;
      }
      seen.arguments = [...calls.values()].map((text) => text || '{}');
    }
  }
}

const READERS = {
  'openai-chat': [OpenAI, chat, '/v1'],
  'openai-responses': [OpenAI, responses, '/v1'],
  anthropic: [Anthropic, messages, ''],
};

function parses(text) {
  if (typeof text !== 'string') return true;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  const [Client, read, path] = READERS[job.family];
  const options = { apiKey: 'none', baseURL: job.base + path, timeout: 30_000 };
  // Log messages of an SDK must not go to standard output.
  options.logLevel = 'off';
  if (job.retries !== null) options.maxRetries = job.retries;
  const seen = nothing();
  let failed = null;
  try {
    await read(new Client(options), job, seen);
  } catch (error) {
    failed = error;
  }
  console.log(JSON.stringify({
    key: job.key,
    exception: failed ? failed.constructor.name : null,
    message: failed ? String(failed.message).split(/\s+/).join(' ').slice(0, 160) : null,
    value: seen.value,
    detail: seen.detail,
    text: [...seen.text].length,
    refusal: [...seen.refusal].length,
    calls: seen.arguments.length,
    parse: seen.arguments.filter(parses).length,
    events: seen.events,
  }));
}
