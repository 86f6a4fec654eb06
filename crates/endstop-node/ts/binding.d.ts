// Types of the compiled half. Written by the check from the Rust sources.
import type { Category, Confidence, ErrorClass, SignalReason, Termination } from './vocabulary.js';

/** Decodes a streamed response while its bytes pass. */
export declare class NativeDecoder {
  /** Creates a decoder. */
  constructor(facts: ResponseFacts)
  /** Takes the next bytes, and returns what they add to the turn. */
  push(chunk: Uint8Array | string): Array<Delta>
  /** Ends the body. `reset` is true if the connection broke. */
  finish(reset: boolean): NativeDetection
  /** True if the protocol's end marker arrived, so that nothing more needs to be read. */
  get complete(): boolean
  /** The format, once it is known. */
  get api(): string | null
}

/** A decoded response as the kernel has it, which a run reads. */
export declare class NativeDetection {
  /** Returns the content as a plain object. */
  fields(): DetectionFields
  /** Returns the object that `endstop detect` prints, as JSON. */
  printed(): string
}

/** A handle for one model call at a time. */
export declare class NativeHandle {}

/** A rule that decides after each step if the run stops. */
export declare class NativePolicy {
  /** Builds a policy from a name or `name={json}`, or from a specification as JSON. */
  static build(text: string, isJson: boolean): NativePolicy
  /** Makes a policy of a function of the JavaScript half. */
  static of(name: string, description: string, factory: () => (step: string, context: string) => CodeAnswer): NativePolicy
  /** Returns a policy that stops when at least `n` of these do. */
  static kOf(n: number, policies: Array<NativePolicy>): NativePolicy
  /** The name that outcomes use. */
  get name(): string
  /** One line about the policy. */
  get description(): string
  /** The specification that the policy was built from, as JSON; null for code. */
  get specification(): string | null
  /** Judges a step, given as JSON. The policy keeps its state between calls, until `reset`. */
  shouldStop(step: string, context: string): Judged
  /** Discards the state. */
  reset(): void
  /** Returns a policy that stops as this one does, but not before `steps` turns are completed. */
  afterSteps(steps: number): NativePolicy
  /** Returns a policy that stops when this one does for the `steps`-th step in a row. */
  sustained(steps: number): NativePolicy
  /** Returns a policy that stops when one of both does. */
  or(other: NativePolicy): NativePolicy
  /** Returns a policy that stops when both do for the same step. */
  and(other: NativePolicy): NativePolicy
  /** Returns a policy that stops when this one does not. */
  not(): NativePolicy
}

/** A run under the kernel. */
export declare class NativeRun {
  /** Starts a run. */
  constructor(options: RunOptions, policy?: NativePolicy | undefined | null)
  /**
   * Asks if the model may be called. With `ends`, an answer ends the run unless input or a retry
   * continues it.
   */
  ask(at: number, ends: boolean, call?: AskFields | undefined | null, handle?: NativeHandle | undefined | null): boolean
  /** Returns a handle for model calls of the conversation with this name. */
  call(of: string): NativeHandle
  /** True if the handle's call waits for its response. */
  isOpen(handle?: NativeHandle | undefined | null): boolean
  /** Feeds a response that was decoded. */
  turn(at: number, response: NativeDetection, handle?: NativeHandle | undefined | null): TurnFields
  /** Decodes a response, and feeds it. */
  body(at: number, body: Uint8Array | string, facts?: ResponseFacts | undefined | null, handle?: NativeHandle | undefined | null): TurnFields
  /** Feeds streamed content while it arrives. False: stop reading, the run has ended. */
  delta(at: number, text: string, kind: string, handle?: NativeHandle | undefined | null): boolean
  /** Feeds the failure of a model call. False: the run has ended. */
  failed(at: number, problem: ModelError, handle?: NativeHandle | undefined | null): boolean
  /** Feeds the result of a tool call. False: the run has ended. */
  result(at: number, call: string, report: Report, handle?: NativeHandle | undefined | null): boolean
  /** True if a response of the run has asked for a tool call. */
  hasAsked(call: string): boolean
  /** Feeds named values and measurements for policies, as JSON. */
  observe(at: number, variables?: string | undefined | null, metrics?: string | undefined | null): boolean
  /** Adds what a nested run has spent. */
  spent(at: number, spent: SpentFields): boolean
  /** Adds what a response of another agent has cost, which is not a turn of this run. */
  spentOn(at: number, response: NativeDetection): boolean
  /** Adds what another run has spent since it was last added. */
  spentBy(at: number, run: NativeRun): boolean
  /** Asks if the model may be called again, before it is known that it will be. */
  may(at: number): boolean
  /** Asks if a run that this one pays for may call a model. */
  maySpend(at: number): boolean
  /** Changes limits of the run, and leaves the others. What was spent so far counts against the new ones. */
  setLimits(at: number, limits: string): boolean
  /** Checks the clock. False: the run has ended. */
  tick(at: number): boolean
  /** Milliseconds for which the next model call must wait; null if it may start now. */
  pause(at: number): number | null
  /** Returns the messages of Endstop for the next request, and forgets them. */
  notes(): Array<string>
  /** Cancels the run. Null if another call uses it; that call then performs it. */
  cancel(at: number): OutcomeFields | null
  /** Terminates the run. Returns as `cancel` does. */
  terminate(at: number): OutcomeFields | null
  /** Reports that code around the run failed. Ends the run as `error_during_execution`. */
  fault(at: number, name: string, message: string): OutcomeFields
  /**
   * Reports that the loop is gone, and returns the outcome. `ended` is an ending that only the
   * framework knows, and `deliverable` its answer as JSON.
   */
  close(at: number, ok: boolean, detail: string, ended?: string | undefined | null, deliverable?: string | undefined | null): OutcomeFields
  /** Parks the run, and returns its text. */
  park(at: number): string
  /**
   * Continues a parked run. `limits` are changes by name, as JSON, and `allow` the names of those that
   * may be looser.
   */
  static resume(text: string, limits?: string | undefined | null, allow?: Array<string> | undefined | null, policy?: NativePolicy | undefined | null): NativeRun
  /** Gives the text of a resumed run back, because the JavaScript half could not use the run. */
  giveBack(): void
  /** True if the run is parked. */
  isParked(): boolean
  /** Milliseconds for which the run has run, as of its last event. */
  elapsed(): number
  /** Returns the progress of the run. */
  progress(): Progress
}

/**
 * Returns the format of the responses to a request, by its method and its path; null if it is not a model
 * call.
 */
export declare function apiOf(method: string, path: string): string | null

/** A model call that the caller is about to make. */
export interface AskFields {
  /** Messages of the user that continue the conversation. */
  input?: Array<string>
  /** True if the call repeats the last one. */
  retry?: boolean
  /** Bytes of the prompt: an upper bound on its tokens. */
  promptBytes?: number
  /** Most tokens of output that the call allows. */
  outputCap?: number
  /** True if the response is streamed. */
  streaming?: boolean
}

/** A tool call that the model requested. */
export interface Call {
  /** The provider's id of the call. */
  readonly id: string
  /** Name of the tool. */
  readonly name: string
  /** The arguments as the model wrote them: JSON text. */
  readonly arguments: string
  /** The arguments, parsed; null if they are not a JSON object. Blank arguments are an empty one. */
  readonly args: Record<string, any> | null | null
}

/** Checks that the chunks of a stream, as text, are those of one response. */
export declare function checkChunks(chunks: Array<string>): void

/** Checks the name of a termination that a policy may cause. */
export declare function checkPolicyEnd(name: string): void

/** The result of a policy function, as the JavaScript half reports it. */
export interface CodeAnswer {
  /** The verdict. */
  verdict: VerdictFields | null
  /** The message of the exception that the function threw. */
  failed: string | null
  /** Stack of that exception. */
  stack: string | null
}

/** Checks a price, and returns the cost in US dollars of this many tokens. */
export declare function costOf(price: PriceFields, input: number, output: number, cached: number): number

/** The decision that ended a run. */
export interface DecidedBy {
  /** Layer of the check: for example `limit`, `policy` or `signal`. */
  readonly layer: string
  /** Name of the check. */
  readonly name: string
  /** The reason, for a person to read. */
  readonly evidence: string
}

/** Returns the limits that apply if nothing is set, as JSON. */
export declare function defaultLimits(): string

/** An increment of a streamed turn. */
export interface Delta {
  /** Kind of the increment; `call` is the start of a call, and a hidden one is not part of the turn. */
  readonly kind: 'text' | 'reasoning' | 'refusal' | 'call' | 'arguments' | 'hidden' | 'hidden_reasoning'
  /** The text; of a call that starts, the name of the tool. */
  readonly text: string
  /** Position of the call among the turn's calls, from 0; null for text. */
  readonly index: number | null
  /** Id of the call that starts. */
  readonly id: string | null
}

/** Describes a response by hand. */
export declare function describe(given: Described): NativeDetection

/** The content of a described response. */
export interface Described {
  /** The visible text. */
  text?: string
  /**
   * The provider's finish value as it sent it, in any format. If it is missing or blank, the
   * response counts as cut, and never as a success.
   */
  finish?: string
  /** The tool calls. */
  calls?: Array<GivenCall>
  /** The text with which the model refused. */
  refusal?: string
  /** Prompt tokens. */
  inputTokens?: number
  /** Generated tokens. */
  outputTokens?: number
  /** Prompt tokens read from a cache. */
  cachedInputTokens?: number
  /** Prompt tokens written to a cache. */
  cacheWriteTokens?: number
  /** The part of `cacheWriteTokens` that is stored for an hour. */
  cacheWrite1hTokens?: number
  /** Generated tokens spent on reasoning. */
  reasoningTokens?: number
  /** All tokens together. */
  totalTokens?: number
  /** Cost in US dollars. */
  costUsd?: number
  /** The model that answered. */
  model?: string
}

/** Detects why a model's turn ended, from the body of a response. */
export declare function detect(body: Uint8Array | string, facts?: ResponseFacts | undefined | null): NativeDetection

/** A decoded response: its content, and why the model stopped. */
export interface DetectionFields {
  /** The wire format, for example `openai-chat`; empty if the response was described by hand. */
  readonly api: string
  /** The reason why the model stopped, with the provider's own value. */
  readonly signal: Signal
  /** The reason alone, a `SignalReason`. */
  readonly reason: SignalReason
  /** True if the turn ends the model's part: it asks for no tool and is not paused. */
  readonly shouldTerminate: boolean
  /** The visible text. */
  readonly text: string
  /** The reasoning in plain text. */
  readonly reasoning: string
  /** The text with which the model refused, if the provider marks it. */
  readonly refusal: string | null
  /**
   * The tool calls that may run. A call that the token limit or a lost connection cut, or whose
   * arguments are not a JSON object, is never among them.
   */
  readonly calls: readonly Call[]
  /** The tool calls that must not run, because they are cut or invalid. */
  readonly cutCalls: readonly Call[]
  /** Token usage. */
  readonly usage: Usage
  /** The model that answered, as the provider names it. */
  readonly model: string | null
  /** The error that the response is, or that ended it. */
  readonly error: ModelError | null
  /** True if a finish value or the protocol's end marker arrived. */
  readonly complete: boolean
  /** True if the response was a stream of events. */
  readonly streamed: boolean
}

/** A tool call as a framework describes it. */
export interface GivenCall {
  /** The provider's id of the call. */
  id: string
  /** Name of the tool. */
  name: string
  /** The arguments: JSON text. */
  arguments: string
}

/** The verdict on a step, or the failure of the policy. */
export interface Judged {
  /** The verdict; null if the policy failed. */
  verdict: VerdictFields | null
  /** The failure. */
  failed: string | null
}

/** A limit, as the JavaScript half checks it. */
export interface LimitInfo {
  /** Name of the limit. A duration also has a name with the suffix `_ms`. */
  name: string
  /** The type of its value. */
  kind: 'count' | 'usd' | 'time' | 'switch' | 'text' | 'choice'
  /** The values of a choice. */
  choices: Array<string>
  /** The reason why the limit has no effect on a run of this binding. */
  obstacle: string | null
}

/** Returns all limits. */
export declare function limitTable(): Array<LimitInfo>

/** Returns the values of all enumerations. A test compares `ts/vocabulary.ts` with them. */
export declare function members(): Array<Members>

/** The values of an enumeration as the kernel spells them. */
export interface Members {
  /** Name of the enumeration. */
  name: string
  /** The values, in the order of the kernel. */
  values: Array<string>
}

/** Builds the error of a model call from a message, with a class by name. */
export declare function modelError(kind: string, message: string): ModelError

/** The error of a model call, or a response that is an error. */
export interface ModelError {
  /** Class of the error, an `ErrorClass`. */
  readonly kind: ErrorClass
  /** The category, which determines what to do next. */
  readonly category: Category
  /** HTTP status, if there was a response. */
  readonly status: number | null
  /** The provider's message, or Endstop's own. Contains no credential. */
  readonly message: string
  /** Wait time that the provider asks for: in seconds, and in milliseconds in JavaScript. */
  readonly retryAfterMs: number | null
}

/** The ending of a run: one, typed, priced and explained. */
export interface OutcomeFields {
  /** The outcome as JSON, as in the last line of `endstop run --json`. */
  readonly json: string
  /** The termination. */
  readonly termination: Termination
  /** The category, which determines what to do next. */
  readonly category: Category
  /** True if the run succeeded. */
  readonly isSuccess: boolean
  /** The reason for the ending, for a person to read. */
  readonly evidence: string
  /** The check that ended the run: `layer`, `name` and `evidence`. */
  readonly decidedBy: DecidedBy
  /** Other terminations that also applied. */
  readonly also: readonly Termination[]
  /**
   * The answer of a success: what was declared, else the visible part of the last text. Missing if the
   * run is not a success; the last text may then be partial.
   */
  readonly answer: string | null
  /** The last visible text that is not blank; partial if the response was cut. */
  readonly lastText: string | null
  /** Number of responses that became part of the conversation. */
  readonly turns: number
  /** Number of attempts at model calls. */
  readonly modelCalls: number
  /** Number of tool calls that were answered. */
  readonly toolCalls: number
  /** Token usage of all attempts. */
  readonly usage: Usage
  /** Known cost in US dollars; missing if no part of it is known. */
  readonly costUsd: number | null
  /** Upper bound on the cost in US dollars, if one is known. */
  readonly costUpperUsd: number | null
  /** True if part of the cost is unknown. The known cost is then a lower bound. */
  readonly costUnknown: boolean
  /** Seconds from start to end; milliseconds in JavaScript. */
  readonly durationMs: number
  /**
   * Wait time that the provider asked for, if that is why the run ended: in seconds, and in
   * milliseconds in JavaScript.
   */
  readonly retryAfterMs: number | null
  /** Details of a failure, for example the trace of a policy that failed. */
  readonly errorDiagnostic: string | null
  /**
   * Exit status for a process whose run ended so: 0 success, 10 retryable, 20 capacity, 30
   * fatal, 130 cancelled, 143 terminated.
   */
  readonly exitStatus: number
}

/** Returns the names of the built-in policies. */
export declare function policyNames(): Array<string>

/** The price of a model in US dollars per million tokens. */
export interface PriceFields {
  /** Dollars per million prompt tokens. */
  readonly input: number
  /** Dollars per million generated tokens. */
  readonly output: number
  /** Dollars per million prompt tokens read from a cache, if that is not the price of `input`. */
  readonly cachedInput: number | null
  /** Dollars per million prompt tokens written to a cache, if that is not the price of `input`. */
  readonly cacheWrite: number | null
  /** True if every call has this price; false if it is the highest of several. */
  readonly exact: boolean
  /** Tokens of prompt and answer together, if the catalogue knows them. */
  readonly contextWindow: number | null
  /** Source of the price: the caller, or the entry of the catalogue. */
  readonly source: string
}

/** Returns the price of a model (`provider/model`) from the catalogue, or null if it has none. */
export declare function priceOf(model: string): PriceFields | null

/** The progress of a run. */
export interface Progress {
  /** The outcome; null while the run continues. */
  outcome: OutcomeFields | null
  /** The ending that the run has if its loop ends now. */
  ending: Termination | null | null
  /** Number of responses that became part of the conversation. */
  turns: number
  /** Token usage so far. */
  usage: Usage
  /** Known cost so far in US dollars; null if no part of it is known. */
  costUsd: number | null
  /** Milliseconds since the start at which `tick` must be called; null if there is no deadline. */
  wakeAt: number | null
}

/** Reads an outcome from its JSON, also that of another process or of an earlier version. */
export declare function readOutcome(json: string): OutcomeFields

/** Reads a price from text such as `in=3,out=15`. */
export declare function readPrice(text: string): PriceFields

/** Removes credentials from text: those of known formats, and the given keys wherever they occur. */
export declare function redact(text: string, keys?: Array<string> | undefined | null): string

/** The result of a tool. */
export interface Report {
  /** Status of the call: `ok`, `error`, `denied`, `timeout` or `aborted`. */
  status: string
  /** Text for the model. */
  content: string
  /** Named values for policies, as JSON. */
  variables?: string
  /** Measurements for policies, as JSON. */
  metrics?: string
  /** A reason to end the run as `error_halted`. */
  halt?: string
}

/** The facts around a response. */
export interface ResponseFacts {
  /** Name of the format; if it is missing, the format is recognised. */
  api?: string
  /** HTTP status. */
  status?: number
  /** Names and values of the headers, by turns. */
  headers?: Array<string>
  /** The request that was sent, as JSON. */
  request?: string
}

/** The options of a run. */
export interface RunOptions {
  /** Limits by name, as JSON. */
  limits?: string
  /** The task, which policies see. */
  task?: string
  /** The model, `provider/model`, whose price is looked up. */
  model?: string
  /** The price, which takes precedence. */
  price?: PriceFields
  /** True if the loop adds the run's notes to its next request. */
  inject?: boolean
  /** True if the loop waits for the run's pauses before each model call. */
  waits?: boolean
  /** Limits on the calls of single tools, as JSON. */
  maxCalls?: string
  /** Named values for policies, as JSON. */
  variables?: string
}

/** The reason why the model stopped its turn, with the provider's own value. */
export interface Signal {
  /** The reason, a `SignalReason`. */
  readonly reason: SignalReason
  /** True if the turn ends the model's part: it asks for no tool and is not paused. */
  readonly shouldTerminate: boolean
  /** The confidence that the reason was read correctly, a `Confidence`. */
  readonly confidence: Confidence
  /** Name of the field that the reason was read from, for example `finish_reason`. */
  readonly originalField: string
  /** Raw value of that field; empty if it was missing. */
  readonly originalValue: string
  /** Other data of the provider about the end of the turn. */
  readonly metadata: Record<string, any> | null
  /** An explanation for a person, if there is one. */
  readonly message: string | null
}

/** The spending of a nested run. */
export interface SpentFields {
  /** Prompt tokens. */
  inputTokens?: number
  /** Generated tokens. */
  outputTokens?: number
  /** The known part of the cost in US dollars; missing: none is known. */
  costUsd?: number
  /** True if there may be more cost than that. */
  costUnknown?: boolean
  /** Turns, which count towards `max_turns`. */
  turns?: number
  /** Model calls, for the outcome. */
  modelCalls?: number
}

/** A response that was fed to a run. */
export interface TurnFields {
  /** The visible text. */
  readonly text: string
  /**
   * The calls that may run, and no others of the response: a cut call is never among them.
   * Empty if the run has ended.
   */
  readonly calls: readonly Call[]
  /**
   * The calls of the response that must not run: it was cut, or their arguments are not a JSON
   * object, or the run has ended. The kernel has answered them.
   */
  readonly heldBack: readonly Call[]
  /** The reason why the model stopped. */
  readonly signal: Signal
  /** Token usage of the response. */
  readonly usage: Usage
  /** The error that the response is, or that ended it. */
  readonly error: ModelError | null
  /**
   * The ending that the run has if its loop ends now; there is none while the model waits for its
   * tools. An ending that is not a success, such as `error_output_truncated`, means that the
   * response is not an answer; the loop may still continue from it.
   */
  readonly ending: Termination | null | null
  /** True if the run has ended: call neither the model nor a tool. */
  readonly stopped: boolean
  /** The outcome, if the run has ended. */
  readonly outcome: OutcomeFields | null
}

/** Returns the nearest of the names to one that is unknown, and all of them, as part of a message. */
export declare function unknownName(name: string, choices: Array<string>): string

/** Token usage of a response or of a run. Null stands for a count that was not reported. */
export interface Usage {
  /** Prompt tokens, as the provider counts them. */
  readonly inputTokens: number | null
  /** Generated tokens, as the provider counts them. */
  readonly outputTokens: number | null
  /** Prompt tokens read from a cache. */
  readonly cachedInputTokens: number | null
  /** Prompt tokens written to a cache. */
  readonly cacheWriteTokens: number | null
  /** Generated tokens spent on reasoning. */
  readonly reasoningTokens: number | null
  /** Prompt and generated tokens together, including cached ones. */
  readonly totalTokens: number
  /** True if Endstop estimated the numbers, because the provider did not count. */
  readonly estimated: boolean
}

/** The decision of a policy about a step: continue, continue with a message for the model, or stop. */
export interface VerdictFields {
  /** True if the run stops. */
  readonly stops: boolean
  /** The termination of the run, if it stops. */
  readonly endsAs: Termination | null | null
  /** The answer as text, if the verdict has one. */
  readonly answer: string | null
  /** The answer as a value of JSON, if the verdict has one. */
  readonly deliverable: any | null
  /** Name of the policy that decided. */
  readonly policy: string | null
  /** The reason, for a person to read; empty if the run continues. */
  readonly evidence: string
  /** The message for the model, if the policy has one. */
  readonly message: string | null
}
