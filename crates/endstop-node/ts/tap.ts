// Reads the responses of model calls on their way through `fetch`.
//
// Many frameworks drop the provider's finish value, or make one up. The tap sits below them and
// decodes the bytes while they pass. The client gets them unchanged.
//
//   const client = new OpenAI({ fetch: tap() });
//   const recording = await record(() => framework.run(client));
//   recording.last?.reason       // 'token_limit_reached'
//
// A response belongs to the recording of the asynchronous context in which its request is sent, so
// that concurrent runs can share a client. A client without an option for `fetch` can be put behind
// `endstop guard` instead.

import { AsyncLocalStorage } from 'node:async_hooks';
import { Detection, StreamDecoder } from './detect.js';
import { native } from './native.js';

type Fetch = typeof globalThis.fetch;

/** Statuses of responses without a body. */
const NO_BODY = [101, 103, 204, 205, 304];

/** The responses of model calls, in the order of their ends. */
export class Recording {
  detections: Detection[] = [];
  /** @internal Responses whose bodies have not ended. */
  readonly open = new Set<Observer>();

  /**
   * `each` is called with every response at its end; `before` in front of every request, which waits for it, and
   * which it may refuse.
   */
  constructor(
    readonly each?: (detection: Detection) => void,
    readonly before?: () => void | Promise<void>,
  ) {}

  /** The response that ended last; null before the first. */
  get last(): Detection | null {
    return this.detections.at(-1) ?? null;
  }

  /** Returns the responses since the last call of this method, and forgets them. */
  take(): Detection[] {
    return this.detections.splice(0);
  }

  /**
   * Ends the responses whose end marker has passed although the connection is open. Some SDKs report
   * the finish at the marker, before they read the end of the body.
   */
  settle(): void {
    for (const observer of this.open) {
      if (observer.decoder.complete) observer.end(false);
    }
  }

  /** Ends the responses whose bodies have not ended, because the client has given up. */
  abandon(): void {
    for (const observer of this.open) observer.end(true);
  }

  /** Adds a response. */
  add(detection: Detection): void {
    this.detections.push(detection);
    this.each?.(detection);
  }
}

const CURRENT = new AsyncLocalStorage<Recording>();

/** Runs a function, and records the responses to the requests that it and its callees send. */
export function within<T>(recording: Recording, body: () => T): T {
  return CURRENT.run(recording, body);
}

/** Runs a function, and returns the recording of the requests that it sent. */
export async function record(
  body: (recording: Recording) => unknown,
  each?: (detection: Detection) => void,
): Promise<Recording> {
  const recording = new Recording(each);
  await CURRENT.run(recording, () => body(recording));
  return recording;
}

/**
 * Returns a `fetch` that decodes the responses of model calls. Without a recording of its own, a
 * response belongs to the innermost of its context; without any, it passes through.
 *
 * A request is recognised before it is sent, and nothing that fails here fails the call: a request of
 * an unknown kind, or a response that cannot be passed on, is not recorded.
 */
export function tap(inner?: Fetch, own?: Recording): Fetch {
  return async (input, init) => {
    const recording = own ?? CURRENT.getStore();
    const known = recording === undefined ? null : recognised(input, init);
    if (known !== null) await recording?.before?.();
    const response = await (inner ?? globalThis.fetch)(input, init);
    return recording === undefined || known === null ? response : observed(response, recording, known);
  };
}

/** What is known of a model call before it is sent. */
interface Known {
  readonly api: string;
  readonly request: string | undefined;
}

/** Returns the format of the response to a request; null if it is not that of a model call. */
function recognised(input: unknown, init: Parameters<Fetch>[1]): Known | null {
  try {
    // Not `instanceof Request`, because a client may have the classes of another package.
    const request = typeof input === 'object' && input !== null && 'url' in input ? (input as Request) : null;
    const method = String(init?.method ?? request?.method ?? 'GET').toUpperCase();
    // A relative address is one of the program's own fetch.
    const { pathname } = new URL(request === null ? String(input) : String(request.url), 'http://localhost');
    const api = native.apiOf(method, pathname);
    return api === null ? null : { api, request: requestOf(init) };
  } catch {
    return null;
  }
}

/** Returns the request's JSON, if it was given as text or bytes. */
function requestOf(init: Parameters<Fetch>[1]): string | undefined {
  const body: unknown = init?.body;
  const text = body instanceof Uint8Array ? Buffer.from(body).toString('utf8') : body;
  if (typeof text !== 'string') return undefined; // A stream cannot be read twice.
  try {
    JSON.parse(text);
    return text;
  } catch {
    return undefined;
  }
}

/** Decodes one response while its bytes pass. */
class Observer {
  #ended = false;

  constructor(
    readonly recording: Recording,
    readonly decoder: StreamDecoder,
  ) {
    recording.open.add(this);
  }

  push(chunk: Uint8Array): void {
    if (!this.#ended) this.decoder.push(chunk);
  }

  end(reset: boolean): void {
    if (this.#ended) return;
    this.#ended = true;
    this.recording.open.delete(this);
    const detection = this.decoder.finish({ reset: reset && !this.decoder.complete });
    try {
      this.recording.add(detection);
    } catch (problem) {
      // The function of the recording failed, which must not break the client's stream.
      process.emitWarning(problem instanceof Error ? problem : String(problem));
    }
  }
}

/** Returns a response with the same content, whose bytes pass an observer. */
function observed(response: Response, recording: Recording, known: Known): Response {
  const { status, statusText, headers, body } = response;
  // A response of another package, or one whose body was read already.
  if (body !== null && (typeof body?.getReader !== 'function' || body.locked)) return response;
  // Of other statuses no response can be made.
  if (status < 200 || status > 599) return response;
  let observer: Observer;
  try {
    observer = new Observer(recording, new StreamDecoder({ ...known, status, headers }));
  } catch {
    return response;
  }
  if (body === null || NO_BODY.includes(status)) {
    observer.end(false);
    return response;
  }
  return withFacts(new Response(passedOn(body, observer), { status, statusText, headers }), response);
}

/** Returns the stream, whose bytes pass the observer. */
function passedOn(body: ReadableStream<Uint8Array>, observer: Observer): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    // As the body of `fetch`, which can be read into the reader's own buffer.
    type: 'bytes',
    async pull(controller) {
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) {
            observer.end(false);
            controller.close();
            controller.byobRequest?.respond(0);
            return;
          }
          // A stream of bytes cannot pass an empty chunk.
          if (value.length === 0) continue;
          observer.push(value);
          // A copy, because the stream takes the whole buffer, and chunks may share one.
          controller.enqueue(new Uint8Array(value));
          return;
        }
      } catch (problem) {
        observer.end(true);
        controller.error(problem);
      }
    },
    async cancel(reason) {
      observer.end(true);
      await reader.cancel(reason);
    },
  });
}

/** Gives a new response the facts that its constructor cannot set. */
function withFacts(passed: Response, original: Response): Response {
  const { url, redirected, type } = original;
  const clone = (): Response => withFacts(Response.prototype.clone.call(passed), original);
  return Object.defineProperties(passed, { url: { value: url }, redirected: { value: redirected }, type: { value: type }, clone: { value: clone } });
}
