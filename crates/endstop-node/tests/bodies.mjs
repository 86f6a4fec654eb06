// Responses of the formats, as the tests feed them.

/** Returns the body of a chat completion. */
export function chat(text, { finish = 'stop', calls, model = 'gpt-4o-mini' } = {}) {
  const message = { role: 'assistant', content: text ?? null };
  if (calls !== undefined) {
    message.tool_calls = calls.map(([id, name, args]) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    }));
  }
  return JSON.stringify({
    object: 'chat.completion',
    model,
    choices: [{ index: 0, message, finish_reason: finish }],
    usage: { prompt_tokens: 100, completion_tokens: 50 },
  });
}

/** Returns a chat completion that calls the tool `echo`. */
export function tool(number = 1, args = '{"text":"x"}', finish = 'tool_calls') {
  return chat(null, { finish, calls: [[`c${number}`, 'echo', args]] });
}

/** Returns a stream of server-sent events. */
export function sse(events, done = true) {
  const lines = events.map((event) => `data: ${JSON.stringify(event)}\n\n`);
  return Buffer.from(lines.join('') + (done ? 'data: [DONE]\n\n' : ''));
}

/** A stream that the token limit cut. */
export const CUT_STREAM = sse([
  { choices: [{ delta: { content: 'Hel' } }] },
  { choices: [{ delta: { content: 'lo' }, finish_reason: 'length' }] },
]);
