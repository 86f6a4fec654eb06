// Why a model's turn ended, from a response or from a stream of bytes.

import type { Delta, DetectionFields, NativeDecoder, NativeDetection } from './binding.js';
import type { Call, ResponseFacts, Signal } from './binding.js';
import { bound, ConfigError } from './errors.js';
import { native } from './native.js';
import { isUnread, type Kinds, readOptions, shown } from './options.js';

/** An object, but neither a promise of one nor a list, which may have promises. */
type Plain = object & { readonly then?: never; readonly [Symbol.iterator]?: never };

/** Bytes, text, an object of JSON or of an SDK, or the chunks of a stream. */
export type Body = Uint8Array | ArrayBuffer | string | Plain | readonly (Uint8Array | string | Plain)[];

/** The facts around a response. */
export interface DetectOptions {
  /** Name of the format, for example `openai-chat`; if it is missing, the format is recognised. */
  readonly api?: string | undefined;
  /** HTTP status. */
  readonly status?: number | undefined;
  /** The response's headers. */
  readonly headers?: Iterable<readonly [string, string]> | Record<string, string> | undefined;
  /** The request that was sent; it tells a cut at the output cap and a stop string from other ends. */
  readonly request?: string | Uint8Array | object | undefined;
}

const FACTS: Kinds<DetectOptions> = { api: 'text', status: 'amount', headers: 'any', request: 'any' };
const DESCRIPTION: Kinds<Description> = {
  text: 'text',
  finish: 'text',
  calls: 'any',
  refusal: 'text',
  inputTokens: 'amount',
  outputTokens: 'amount',
  cachedInputTokens: 'amount',
  cacheWriteTokens: 'amount',
  cacheWrite1hTokens: 'amount',
  reasoningTokens: 'amount',
  totalTokens: 'amount',
  costUsd: 'amount',
  model: 'text',
};

let handleOf: (detection: Detection) => NativeDetection;

/** A decoded response: its content, and why the model stopped. It is frozen. */
export class Detection {
  readonly #native: NativeDetection;

  static {
    handleOf = (detection) => detection.#native;
  }

  /** @internal */
  constructor(found: NativeDetection) {
    this.#native = found;
    const fields = found.fields();
    freezeCalls(fields.calls);
    freezeCalls(fields.cutCalls);
    freezeSignal(fields.signal);
    Object.freeze(fields.usage);
    if (fields.error !== null) Object.freeze(fields.error);
    Object.assign(this, fields);
    Object.freeze(this);
  }

  /** Returns the object that `endstop detect` prints. */
  toJSON(): Record<string, any> {
    return JSON.parse(this.#native.printed()) as Record<string, any>;
  }
}

export interface Detection extends DetectionFields {}

/** Returns the kernel's form of a detection. */
export function nativeOf(detection: Detection): NativeDetection {
  return handleOf(detection);
}

/** Parses the arguments of calls, and freezes them. */
export function freezeCalls(calls: readonly Call[]): void {
  for (const call of calls) {
    (call as { args: Call['args'] }).args = readArguments(call.arguments);
    Object.freeze(call);
  }
  Object.freeze(calls);
}

function readArguments(text: string): Record<string, any> | null {
  if (text.trim() === '') return {};
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, any>) : null;
  } catch {
    return null; // Cut, or not JSON.
  }
}

/** Parses the metadata of a signal, and freezes it. */
export function freezeSignal(signal: Signal): void {
  const json = signal.metadata as unknown as string | null;
  (signal as { metadata: object }).metadata = json === null ? {} : (JSON.parse(json) as object);
  Object.freeze(signal);
}

/** Detects why a model's turn ended. Throws `FormatError` if the format is not recognised. */
export function detect(response: Body, options: DetectOptions = {}): Detection {
  const body = bytesOf(response);
  return new Detection(bound(() => native.detect(body, factsOf(options))));
}

/** A response as a framework describes it. */
export interface Description {
  /** The visible text. */
  readonly text?: string | undefined;
  /**
   * The provider's finish value as it sent it, in any format. If it is null, none arrived: the
   * response then counts as cut, and never as a success.
   */
  readonly finish: string | null;
  /** The tool calls. Arguments that are not text are written as JSON. */
  readonly calls?: readonly { id: string; name: string; arguments: unknown }[] | undefined;
  /** The text with which the model refused. */
  readonly refusal?: string | null | undefined;
  /** Prompt tokens. */
  readonly inputTokens?: number | undefined;
  /** Generated tokens. */
  readonly outputTokens?: number | undefined;
  /** Prompt tokens read from a cache. They are part of `inputTokens`, unless the total or their number shows otherwise. */
  readonly cachedInputTokens?: number | undefined;
  /** Prompt tokens written to a cache, likewise. */
  readonly cacheWriteTokens?: number | undefined;
  /** The part of `cacheWriteTokens` that is stored for an hour. */
  readonly cacheWrite1hTokens?: number | undefined;
  /** Generated tokens spent on reasoning. They are part of `outputTokens`, unless the total shows otherwise. */
  readonly reasoningTokens?: number | undefined;
  /** All tokens together. */
  readonly totalTokens?: number | undefined;
  /** Cost in US dollars. */
  readonly costUsd?: number | undefined;
  /** The model that answered. */
  readonly model?: string | undefined;
}

/** Describes a response by hand, for a framework that does not show the provider's bytes. */
export function response(given: Description): Detection {
  readOptions('response', given, DESCRIPTION);
  const calls = (given.calls ?? []).map((call) => ({
    id: call.id,
    name: call.name,
    arguments: typeof call.arguments === 'string' ? call.arguments : JSON.stringify(call.arguments ?? {}),
  }));
  return new Detection(bound(() => native.describe(defined({ ...given, calls }))));
}

/** Decodes a streamed response while its bytes pass. */
export class StreamDecoder {
  readonly #native: NativeDecoder;

  constructor(options: DetectOptions = {}) {
    this.#native = bound(() => new native.NativeDecoder(factsOf(options)));
  }

  /**
   * Takes the next bytes, and returns what they add to the turn. Nothing is added by a body that is
   * not a stream: it is decoded at the end. After `finish`, bytes are ignored.
   */
  push(chunk: Uint8Array | string): Delta[] {
    return bound(() => this.#native.push(unshared(chunk)));
  }

  /**
   * Ends the body. `reset` is true if the connection broke. Bytes that cannot be understood give an
   * error in the result, never a success.
   */
  finish(options: { reset?: boolean } = {}): Detection {
    return new Detection(bound(() => this.#native.finish(options.reset ?? false)));
  }

  /** True if the protocol's end marker arrived, so that nothing more needs to be read. */
  get complete(): boolean {
    return this.#native.complete;
  }

  /** The format, once it is known. */
  get api(): string | null {
    return this.#native.api;
  }
}

/** Returns the facts as the binding reads them. */
export function factsOf(options: DetectOptions): ResponseFacts {
  readOptions('a response', options, FACTS);
  const { api, status, headers, request } = options;
  const pairs = headers === undefined ? undefined : Symbol.iterator in headers ? [...headers] : Object.entries(headers);
  return defined({
    api,
    status,
    headers: pairs?.flatMap(([name, value]) => (typeof value === 'string' ? [name, value] : [])),
    request: request === undefined ? undefined : textOf(request),
  });
}

function textOf(value: string | Uint8Array | object): string {
  if (typeof value === 'string') return value;
  return value instanceof Uint8Array ? Buffer.from(value).toString('utf8') : JSON.stringify(value);
}

/** The fix for what has not arrived yet. */
const UNREAD = "await it first; of a stream pass the list of its chunks, or feed them to a StreamDecoder";

/** Returns a body as bytes or text. */
export function bytesOf(response: Body): Uint8Array | string {
  if (typeof response === 'string') return response;
  if (response instanceof Uint8Array) return unshared(response);
  if (response instanceof ArrayBuffer) return new Uint8Array(response);
  if (Array.isArray(response)) return joined(response as readonly (Uint8Array | string | object)[]);
  if (isUnread(response)) {
    const fix = 'arrayBuffer' in (response as object) ? 'read its body first, for example `await response.text()`' : UNREAD;
    throw new ConfigError(`invalid response of type ${shown(response)}: ${fix}`);
  }
  if (typeof response !== 'object' || response === null) {
    throw new ConfigError(
      `invalid response of type ${response === null ? 'null' : typeof response}: expected bytes, ` +
        "text, an object, or a list of a stream's chunks",
    );
  }
  return JSON.stringify(response);
}

/**
 * Joins the chunks of a stream: bytes and text as they are, objects as server-sent events. Whole responses in
 * a list are an error, because one answer and one usage would be made of them.
 */
function joined(chunks: readonly (Uint8Array | string | object)[]): Uint8Array {
  const texts: string[] = [];
  const parts = chunks.map((chunk) => {
    if (chunk instanceof Uint8Array) return chunk;
    if (isUnread(chunk)) throw new ConfigError(`invalid chunk of type ${shown(chunk)}: ${UNREAD}`);
    const text = typeof chunk === 'string' ? chunk : JSON.stringify(chunk);
    texts.push(text);
    return Buffer.from(typeof chunk === 'string' ? text : `data: ${text}\n\n`);
  });
  if (texts.length > 1) bound(() => native.checkChunks(texts));
  return Buffer.concat(parts);
}

/** Copies bytes that another thread may write to. */
function unshared(chunk: Uint8Array | string): Uint8Array | string {
  const isShared = typeof chunk !== 'string' && chunk.buffer instanceof SharedArrayBuffer;
  return isShared ? new Uint8Array(chunk) : chunk;
}

/** Returns the object without the members that are undefined or null. */
export function defined<T extends object>(given: T): { [K in keyof T]: Exclude<T[K], undefined | null> } {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined | null> };
}
