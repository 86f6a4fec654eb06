// The failure of a model call, from what SDKs throw.

import type { ModelError } from './binding.js';
import { bound } from './errors.js';
import { native } from './native.js';
import type { ErrorClass } from './vocabulary.js';

/** Causes of causes that are looked at. */
const MOST_CAUSES = 5;

/** Returns the error of the kernel for an exception of an SDK, a `ModelError`, or a message. */
export function failureOf(problem: unknown, kind?: ErrorClass): ModelError {
  if (isModelError(problem)) return problem;
  const message = problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem);
  if (kind !== undefined) return bound(() => native.modelError(kind, message));
  for (const one of chain(problem)) {
    const found = ofResponse(one);
    if (found !== null) return found;
  }
  return native.modelError(classOf(problem), message);
}

function isModelError(value: unknown): value is ModelError {
  return typeof value === 'object' && value !== null && 'kind' in value && 'category' in value && 'message' in value;
}

/** Returns an exception and its causes, also the last error of retries. */
function chain(problem: unknown): Record<string, unknown>[] {
  const found: Record<string, unknown>[] = [];
  let next: unknown = problem;
  while (typeof next === 'object' && next !== null && found.length < MOST_CAUSES) {
    const one = next as Record<string, unknown>;
    found.push(one);
    next = one['lastError'] ?? one['cause'];
  }
  return found;
}

/** Classifies the response that an exception carries. */
function ofResponse(problem: Record<string, unknown>): ModelError | null {
  const status = problem['statusCode'] ?? problem['status'];
  if (typeof status !== 'number' || status < 300 || status > 599) return null;
  const inner = problem['error'];
  const body = problem['responseBody'] ?? (typeof inner === 'object' && inner !== null ? JSON.stringify({ error: inner }) : '');
  try {
    const found = native.detect(typeof body === 'string' ? body : '', { status, headers: headersOf(problem) });
    return found.fields().error;
  } catch {
    return null; // A body in an unknown format.
  }
}

function headersOf(problem: Record<string, unknown>): string[] {
  const given = problem['responseHeaders'] ?? problem['headers'];
  if (typeof given !== 'object' || given === null) return [];
  const pairs = given instanceof Headers ? [...given] : Object.entries(given as Record<string, unknown>);
  return pairs.flatMap(([name, value]) => (typeof value === 'string' ? [name, value] : []));
}

/** Guesses the class of an exception without a response, by its names and codes. */
function classOf(problem: unknown): ErrorClass {
  const signs = chain(problem).map((one) => `${String(one['name'])} ${String(one['code'])} ${String(one['message'])}`);
  const all = signs.join(' ');
  if (/Timeout|ETIMEDOUT/i.test(all)) return 'timeout';
  const lost = /Connection|ECONN|EPIPE|UND_ERR|socket|terminated|fetch failed|premature/i;
  return lost.test(all) ? 'incomplete_stream' : 'unknown_error';
}
