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

  /** `each` is called with every response at its end. */
  constructor(readonly each?: (detection: Detection) => void) {}

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
 * response belongs to that of its context; without any, it passes through.
 */
export function tap(inner?: Fetch, own?: Recording): Fetch {
  return async (input, init) => {
    const response = await (inner ?? globalThis.fetch)(input, init);
    const recording = own ?? CURRENT.getStore();
    const api = recording === undefined ? undefined : apiOf(input, init);
    if (recording === undefined || api === undefined) return response;
    const decoder = new StreamDecoder({
      api,
      status: response.status,
      headers: response.headers,
      request: requestOf(init),
    });
    return observed(response, new Observer(recording, decoder));
  };
}

function apiOf(input: Parameters<Fetch>[0], init: Parameters<Fetch>[1]): string | undefined {
  const isRequest = input instanceof Request;
  const method = init?.method ?? (isRequest ? input.method : 'GET');
  const { pathname } = new URL(isRequest ? input.url : String(input));
  return native.apiOf(method.toUpperCase(), pathname) ?? undefined;
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
    this.decoder.push(chunk);
  }

  end(reset: boolean): void {
    if (this.#ended) return;
    this.#ended = true;
    this.recording.open.delete(this);
    this.recording.add(this.decoder.finish({ reset: reset && !this.decoder.complete }));
  }
}

/** Returns a response with the same content, whose bytes pass the observer. */
function observed(response: Response, observer: Observer): Response {
  if (response.body === null || NO_BODY.includes(response.status)) {
    observer.end(false);
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          observer.end(false);
          controller.close();
        } else {
          observer.push(value);
          controller.enqueue(value);
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
  const { status, statusText, headers } = response;
  const passed = new Response(body, { status, statusText, headers });
  // A new response has no address.
  Object.defineProperty(passed, 'url', { value: response.url });
  return passed;
}
