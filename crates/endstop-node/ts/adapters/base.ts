// What the adapters share: the run of a request, its model calls, and the rule when to stop.

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Call } from '../binding.js';
import type { Description, Detection } from '../detect.js';
import { ConfigError, EndstopStopped, VersionError } from '../errors.js';
import type { Outcome } from '../outcome.js';
import { type Declared, type ModelCall, type ResultOptions, type ResumeOptions, Run, type RunOptions } from '../run.js';
import { Recording, within } from '../tap.js';

/** The settings of the runs of an adapter. */
export interface Settings extends Omit<RunOptions, 'inject' | 'waits'> {
  /** A parked run, which continues instead of a new one: the text of `parked`. */
  readonly resume?: string | undefined;
  /** The limits that may be looser than those of the parked run. */
  readonly allow?: ResumeOptions['allow'];
}

/** What a framework must do after a response. */
export interface Fed {
  /** The outcome, if the framework must stop. */
  readonly stopped: Outcome | null;
  /** The calls that must not run if it continues, because they are cut. */
  readonly heldBack: readonly Call[];
}

/** How a loop ended that returned: as its last response says (null), paused, left, or as only its framework knows. */
export type Ending = null | 'paused' | 'left' | (Declared & { readonly detail?: string });

const CURRENT = new AsyncLocalStorage<Loop>();

/** One loop of a framework, with its run. */
export class Loop {
  readonly run: Run;
  /** The state of the run, if it waits for a person or a client. */
  parked: string | null = null;
  /** True if its loop is gone. */
  isOver = false;
  /** True inside of `during`, which closes the run. */
  isInside = false;
  /** What the adapter remembers of the loop. */
  readonly notes: Record<string, any> = {};
  /** The outcome that left as an exception, which the framework may have swallowed. */
  #thrown: Outcome | null = null;
  /** True while a response is refused, which the framework receives from its model. */
  #isRefusing = false;
  #aborts: AbortController | null = null;
  readonly #open = new Set<Attempt>();
  #attempts = 0;
  /** The conversations that asked for a tool call, by its id, and the calls that wait for results. */
  readonly #owners = new Map<string, string[]>();
  readonly #waiting = new Map<string, Set<string>>();
  readonly #failed = new Set<string>();
  #names = 0;
  /** What the tap sees of others: sub-agents, guardrails and tools that call models. */
  readonly #rest: Recording;

  constructor(
    readonly scope: Scope,
    settings: Settings,
    readonly outer: Loop | null,
  ) {
    const { resume, allow, ...options } = settings;
    if (resume === undefined && allow !== undefined) {
      throw new ConfigError('option `allow`: names the limits of a parked run that may be looser; give its text as `resume`, too');
    }
    this.run = resume === undefined ? new Run({ ...options, waits: true }) : Run.resume(resume, resumed(options, allow));
    const spend = (detection: Detection): void => {
      this.#rest.take();
      if (this.run.running) this.run.spent(detection);
      this.charge();
    };
    this.#rest = new Recording(spend, async () => {
      await this.#wait();
      if (this.run.parked || this.#maySpend()) return;
      throw new EndstopStopped(this.run.finished());
    });
  }

  /** Runs a function in the context of the loop. */
  within<T>(body: () => T): T {
    return CURRENT.run(this, () => within(this.#rest, body));
  }

  /** Aborts when the run ends while the framework works, but not for a response that its model refuses. */
  get signal(): AbortSignal {
    if (this.#aborts === null) {
      const aborts = (this.#aborts = new AbortController());
      const { signal } = this.run;
      const abort = (): void => {
        if (!this.#isRefusing) aborts.abort(signal.reason);
      };
      if (signal.aborted) abort();
      else signal.addEventListener('abort', abort, { once: true });
    }
    return this.#aborts.signal;
  }

  /** Feeds the result of a tool call. */
  result(id: string, output: unknown, options: ResultOptions = {}): void {
    const owner = this.#ownerOf(id);
    if (this.#waiting.get(owner ?? '')?.delete(id) === true) this.#owners.get(id)?.pop();
    if (!this.run.running) return;
    if (owner !== undefined) this.run.call(owner).result(id, output, options);
    // A history also has results from before the run.
    else if (this.run.hasAsked(id)) this.run.result(id, output, options);
  }

  /** The ids of the tool calls that wait for results. */
  get waiting(): string[] {
    return [...this.#waiting.values()].flatMap((ids) => [...ids]);
  }

  /** True if no model call was made. */
  get isUnused(): boolean {
    return this.#attempts === 0;
  }

  /** True if no model call was made yet, or one waits for its response. */
  get isPending(): boolean {
    return this.isUnused || this.#open.size > 0;
  }

  #ownerOf(id: string): string | undefined {
    return this.#owners.get(id)?.at(-1);
  }

  /**
   * Returns the conversation of a model call whose prompt answers these calls, of which none is known. A call
   * that answers none, while the first conversation is busy, is that of a sub-agent or a branch.
   */
  #conversation(answered: readonly string[]): string {
    const isBusy = (this.#waiting.get('')?.size ?? 0) > 0 || [...this.#open].some((one) => one.of === '');
    return isBusy && answered.length === 0 ? `#${(this.#names += 1)}` : '';
  }

  /** Asks if the framework may call the model again. False: the run has ended, also because the one around it failed. */
  mayContinue(): boolean {
    return this.#isAllowed() && this.run.may();
  }

  #maySpend(): boolean {
    return this.#isAllowed() && this.run.maySpend();
  }

  /** Cancels the run if the one around it has ended, and not by an answer. False: the run has ended. */
  #isAllowed(): boolean {
    const { outer, run } = this;
    const isOver = outer !== null && !outer.run.parked && !outer.#maySpend() && !outer.run.finished().isSuccess;
    if (isOver && run.running) run.cancel();
    return run.running;
  }

  /** Charges what is new to the run around this one. */
  charge(): void {
    const { outer, run } = this;
    if (outer === null || outer.run.parked) return;
    outer.run.spent(run);
    outer.charge();
  }

  /** Waits as long as the next model call must, also for the run around this one. */
  async #wait(signal?: AbortSignal): Promise<void> {
    if (this.outer !== null) await this.outer.#wait(signal);
    if (this.run.running) await this.run.wait(signal);
  }

  /**
   * Begins a model call, whose prompt has these results of tools, once the run allows it. Throws `EndstopStopped` if
   * the run has ended.
   */
  async begin(results: readonly Result[], streaming: boolean, signal?: AbortSignal): Promise<Attempt> {
    if (this.isOver) throw used(this.run);
    const answered = results.map((result) => result.id);
    const owner = answered.map((id) => this.#ownerOf(id)).find((one) => one !== undefined);
    for (const { id, output, status } of results) this.result(id, output, status === undefined ? {} : { status });
    await this.#wait(signal);
    if (this.isOver) throw used(this.run);
    this.#isAllowed();
    // After the wait, so that it does not take the conversation of a call that came before.
    const of = owner ?? this.#conversation(answered);
    this.#attempts += 1;
    const call = this.run.running ? this.run.call(of) : null;
    const retry = this.#failed.delete(of);
    if (call?.ask({ streaming, retry }) !== true) throw this.refused(this.run.finished());
    const attempt = new Attempt(this, of, call, signal);
    this.#open.add(attempt);
    return attempt;
  }

  /** Forgets an attempt that has ended. */
  ended(attempt: Attempt, isFailed: boolean): void {
    this.charge();
    this.#open.delete(attempt);
    if (isFailed) this.#failed.add(attempt.of);
  }

  /** Remembers the tool calls that a conversation waits for. */
  waits(of: string, calls: readonly Call[]): void {
    const waiting = this.#waiting.get(of) ?? new Set();
    // The calls of a turn before have been answered, or never will be.
    waiting.clear();
    for (const { id } of calls) {
      waiting.add(id);
      this.#owners.set(id, [...(this.#owners.get(id) ?? []), of]);
    }
    this.#waiting.set(of, waiting);
  }

  /** Ends the run with a response that must not be used. */
  refuse(): Outcome {
    this.#isRefusing = true;
    try {
      return this.run.close();
    } finally {
      this.#isRefusing = false;
    }
  }

  /** Returns the exception that stops the framework. */
  refused(outcome: Outcome): EndstopStopped {
    if (!outcome.isSuccess) this.#thrown = outcome;
    return new EndstopStopped(outcome);
  }

  /** Ends the run because the caller has left. */
  left(): void {
    this.#over(() => this.run.cancel());
  }

  /** Ends the run after its loop returned, unless it is paused. Returns what must leave the adapter instead. */
  returned(ending: () => Ending): EndstopStopped | null {
    const { outcome } = this.run;
    // The framework ended its stream without a word, for example at the deadline.
    if (this.#open.size > 0 && outcome !== null && outcome.termination !== 'cancelled') this.refused(outcome);
    this.#over(() => {
      const how = this.#open.size > 0 ? 'left' : ending();
      if (how === 'left') this.run.cancel();
      else if (how === 'paused') this.parked = this.run.park();
      else if (how !== null) this.run.close(true, how.detail ?? '', how);
      else if (this.isUnused) this.run.close(false, `no model call was seen: ${this.scope.hint}`);
      else this.run.close();
    });
    return this.#thrown === null ? null : new EndstopStopped(this.#thrown);
  }

  /** Ends the run after an exception left its loop. Returns what must leave the adapter. */
  threw(problem: unknown, declared: (problem: unknown) => (Declared & { detail: string }) | undefined): unknown {
    const isOver = !this.run.running;
    const stop = stopIn(problem);
    this.#over(() => this.run.closeAfter(problem, declared(problem)));
    const { outcome } = this.run;
    if (stop !== null && stop.outcome === outcome) return stop;
    const isOurs = isOver && outcome !== null && outcome.termination !== 'cancelled' && this.run.isLeft(problem);
    return isOurs ? new EndstopStopped(outcome) : problem;
  }

  /** Ends or parks the run unless it has ended, marks the loop as gone, and charges it to the run around it. */
  #over(end: () => void): void {
    if (this.run.running) end();
    this.isOver = true;
    this.charge();
  }
}

/** The options of a run that continues: those that the parked run has already are left out. */
function resumed(options: RunOptions, allow: ResumeOptions['allow']): ResumeOptions {
  const { task: _task, model: _model, price: _price, variables: _variables, maxCalls: _maxCalls, inject: _inject, waits: _waits, ...rest } = options;
  return { ...rest, allow };
}

function used(run: Run): ConfigError {
  const how = run.parked ? 'is parked' : `has ended as ${run.outcome?.termination}`;
  return new ConfigError(
    `the run of this Endstop ${how}: call the agent inside of endstop.during(() => …), which makes a run for each ` +
      'request, or make an Endstop for each request',
  );
}

/** Returns the exception of the adapter that a framework has thrown, maybe around its own. */
function stopIn(problem: unknown): EndstopStopped | null {
  const seen = new Set<unknown>();
  let next: unknown = problem;
  while (typeof next === 'object' && next !== null && !seen.has(next)) {
    if (next instanceof EndstopStopped) return next;
    seen.add(next);
    const one = next as Record<string, unknown>;
    next = one['lastError'] ?? one['cause'] ?? one['error'];
  }
  return null;
}

/** A result of a tool in a prompt. */
export interface Result {
  readonly id: string;
  readonly output: unknown;
  readonly status?: ResultOptions['status'];
}

/** One model call of a framework, with all requests that its SDK makes for it. */
export class Attempt {
  /** What the tap sees of the call. */
  readonly #recording = new Recording();

  constructor(
    readonly loop: Loop,
    readonly of: string,
    readonly call: ModelCall,
    /** The signal with which the framework makes the call. */
    readonly signal: AbortSignal | undefined,
  ) {}

  /** Runs a function whose requests are those of the call. */
  within<T>(body: () => T): T {
    return within(this.#recording, body);
  }

  /** Feeds streamed text. False: the run has ended. */
  delta(text: string): boolean {
    return this.call.delta(text);
  }

  /**
   * Feeds the response: as the tap saw it, or else as the framework describes it.
   *
   * The framework must stop if the run has ended, and if the response is neither an answer nor a
   * request for tools. It would take such a response for an answer, or run a tool with half of its
   * arguments.
   */
  finished(described: Detection | null): Fed {
    if (this.#recording.last === null) this.#recording.settle();
    const seen = this.#recording.take();
    // After an error of its provider the framework may have an answer from another one.
    const isRefused = (seen.at(-1)?.error?.status ?? 0) >= 400 && described !== null;
    const response = isRefused ? described : (seen.pop() ?? described);
    if (response === null) {
      this.loop.ended(this, true);
      this.call.close();
      throw new ConfigError('the tap saw no response; give the client the fetch of the tap: { fetch: tap() }');
    }
    this.#earlier(seen);
    return this.#fed(response);
  }

  /**
   * Feeds the failure of the call, and returns what must leave the framework. An SDK may fail on a
   * response that the tap understood, for example one that a filter cut; the response then counts.
   */
  failed(problem: unknown): unknown {
    const { loop } = this;
    this.#recording.settle();
    this.#recording.abandon();
    const seen = this.#recording.take();
    if (problem instanceof EndstopStopped || this.signal?.aborted === true || loop.run.isLeft(problem)) {
      if (problem instanceof EndstopStopped && loop.run.running) {
        loop.ended(this, false);
        this.call.close();
      } else {
        this.left();
      }
      return problem;
    }
    const last = seen.pop();
    this.#earlier(seen);
    if (last === undefined) {
      loop.ended(this, true);
      this.call.failed(problem);
    } else {
      const { stopped } = this.#fed(last);
      if (stopped !== null && last.error === null && !stopped.isSuccess) return loop.refused(stopped);
    }
    const { outcome } = loop.run;
    return outcome === null ? problem : loop.refused(outcome);
  }

  /**
   * Ends the run because the caller has left the call. If the run has ended, `during` throws, because the
   * framework may end its stream without a word, for example at the deadline.
   */
  left(): void {
    const { loop } = this;
    loop.ended(this, false);
    const { outcome } = loop.run;
    if (outcome !== null && outcome.termination !== 'cancelled') loop.refused(outcome);
    if (loop.run.running) loop.run.cancel();
  }

  /** Books the requests before the last: attempts that failed, and responses that the SDK has used itself. */
  #earlier(seen: readonly Detection[]): void {
    const { run } = this.loop;
    for (const one of seen) {
      if (!run.running) return;
      if (one.error === null) {
        run.spent(one);
      } else {
        this.call.turn(one);
        this.call.ask({ retry: true });
      }
    }
  }

  #fed(response: Detection): Fed {
    const { loop } = this;
    const turn = this.call.turn(response);
    loop.ended(this, turn.error !== null);
    loop.waits(this.of, turn.calls);
    const { ending, outcome, heldBack } = turn;
    if (outcome !== null) return { stopped: outcome, heldBack };
    const isUsable = ending === null || ending === 'stop' || ending === 'submitted';
    // A failed attempt may be repeated.
    const isFailed = response.error !== null && response.error.kind !== 'incomplete_stream';
    return { stopped: isUsable || isFailed ? null : loop.refuse(), heldBack };
  }
}

/** The runs of a framework. The adapters add the framework's hooks. */
export abstract class Scope {
  /** What to give the framework, if no model call was seen. */
  abstract readonly hint: string;
  readonly #settings: Settings;
  /** The request outside of `during`. */
  readonly #own: Loop;
  #last: Loop;
  /** The loops inside of `during`. */
  readonly #active = new Set<Loop>();

  constructor(settings: Settings = {}) {
    this.#settings = settings;
    this.#own = new Loop(this, settings, null);
    this.#last = this.#own;
  }

  /** The loop of the asynchronous context; null outside of `during`. */
  protected get current(): Loop | null {
    for (let one = CURRENT.getStore() ?? null; one !== null; one = one.outer) {
      if (one.scope === this) return one;
    }
    return null;
  }

  /** The loop of the asynchronous context or, outside of `during`, the last one. */
  protected get loop(): Loop {
    const { current } = this;
    if (current !== null) return current;
    for (const one of this.#active) if (one.isOver) this.#active.delete(one);
    if (this.#active.size < 2) return this.#last;
    throw new ConfigError(
      'several runs of this Endstop are active, and the call belongs to none of them: make it inside of ' +
        'endstop.during(() => …); `onEnd` has the outcome of each',
    );
  }

  /** The run of this request or, outside of `during`, of the last one. */
  get run(): Run {
    return this.loop.run;
  }

  /** The outcome, once the run has ended. Of requests at the same time, `onEnd` has each. */
  get outcome(): Outcome {
    return this.run.finished();
  }

  /** The state of a run that waits for a person or a client, for `resume`; null if it does not wait. */
  get parked(): string | null {
    return this.loop.parked;
  }

  /** Aborts when the run ends, for example at its deadline. */
  get signal(): AbortSignal {
    return this.loop.signal;
  }

  /**
   * Calls the framework, and ends the run with it. Each call of this method is a run of its own, with
   * these settings and those of the object. Returns what the framework returned; a stream or a
   * `Response` that is returned ends the run when it ends, and a reader that leaves it cancels the run.
   *
   * An exception leaves this method, and ends the run as well. It is `EndstopStopped` if the run has
   * ended, also if the framework swallowed that.
   */
  async during<T>(body: () => T | Promise<T>, settings: Settings = {}): Promise<T> {
    const loop = this.#enter(settings);
    loop.isInside = true;
    if (loop.outer === null) this.#active.add(loop);
    loop.run.arm();
    let value: T;
    try {
      value = await loop.within(body);
    } catch (problem) {
      throw loop.threw(problem, (one) => this.endingAfter(one));
    }
    if (value instanceof ReadableStream) return this.#passed(loop, value) as T;
    if (value instanceof Response && value.body !== null) {
      const { status, statusText, headers } = value;
      return new Response(this.#passed(loop, value.body), { status, statusText, headers }) as T;
    }
    const unread = await this.unread(loop, value);
    if (unread !== null) {
      loop.left();
      throw new ConfigError(unread);
    }
    const stop = loop.returned(() => this.endingOf(loop, value));
    if (stop !== null) throw stop;
    return value;
  }

  #enter(settings: Settings): Loop {
    const own = this.#own;
    const outer = CURRENT.getStore() ?? null;
    const isOwn = outer === null && !own.isInside && !own.isOver && Object.keys(settings).length === 0;
    const loop = isOwn ? own : new Loop(this, { ...this.#settings, ...settings }, outer);
    // A run inside of another one is not the one that the program asks for afterwards.
    if (outer === null) this.#last = loop;
    return loop;
  }

  /** Returns how a loop ended that returned this value. */
  protected abstract endingOf(loop: Loop, value: unknown): Ending;

  /** Returns the ending that an exception of the framework stands for, if it is one of its limits. */
  protected endingAfter(_problem: unknown): (Declared & { detail: string }) | undefined {
    return undefined;
  }

  /** Returns the error for a value that is a stream of the framework, and cannot be passed on. */
  protected unread(_loop: Loop, _value: unknown): string | null | Promise<string | null> {
    return null;
  }

  /** Returns the chunks that a returned stream has for one of its chunks, or at its end. */
  protected chunksOf(_loop: Loop, chunk: unknown): unknown[] {
    return chunk === undefined ? [] : [chunk];
  }

  /** Passes a stream that ends the run. */
  #passed<T>(loop: Loop, stream: ReadableStream<T>): ReadableStream<T> {
    const reader = stream.getReader();
    return new ReadableStream<T>({
      pull: async (controller) => {
        try {
          const { done, value } = await loop.within(() => reader.read());
          for (const chunk of this.chunksOf(loop, done ? undefined : value)) controller.enqueue(chunk as T);
          if (!done) return;
          const stop = loop.returned(() => this.endingOf(loop, undefined));
          // A stream that ended has informed its reader how, unless it was cut without a word.
          if (stop !== null && this.isSilent(loop)) controller.error(stop);
          else controller.close();
        } catch (problem) {
          controller.error(loop.threw(problem, (one) => this.endingAfter(one)));
        }
      },
      cancel: async (reason) => {
        loop.left();
        await reader.cancel(reason);
      },
    });
  }

  /** True if a stream of the framework ends without an error part. */
  protected isSilent(_loop: Loop): boolean {
    return true;
  }
}

/** Returns the counts that are numbers: a provider may send anything. */
export function numbersIn(counts: Partial<Description>): Partial<Description> {
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => Number.isFinite(count) && (count as number) >= 0));
}

/** Throws `VersionError` unless the version is one of those that an adapter supports. */
export function requireVersion(what: string, found: unknown, supported: readonly string[], range: string): void {
  if (supported.includes(String(found))) return;
  throw new VersionError(
    `${what} ${String(found)} is not supported: expected ${supported.join(', ')}; the supported versions are ${range}`,
  );
}
