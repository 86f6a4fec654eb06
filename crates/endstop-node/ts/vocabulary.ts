// The vocabulary of endings. Written by scripts/vocabulary.mjs from the tables of the kernel.

/** The reason why a run ended. */
export const Termination = Object.freeze({
  STOP: 'stop',
  SUBMITTED: 'submitted',
  ERROR_MAX_TURNS: 'error_max_turns',
  ERROR_MAX_BUDGET_USD: 'error_max_budget_usd',
  ERROR_MAX_TOOL_CALLS: 'error_max_tool_calls',
  ERROR_MAX_TOKENS: 'error_max_tokens',
  ERROR_MAX_WINDOW: 'error_max_window',
  ERROR_TIMEOUT: 'error_timeout',
  ERROR_MAX_STRUCTURED_OUTPUT_RETRIES: 'error_max_structured_output_retries',
  ERROR_CONSECUTIVE_MISTAKES: 'error_consecutive_mistakes',
  ERROR_PROMPT_TOO_LONG: 'error_prompt_too_long',
  ERROR_NO_PROGRESS: 'error_no_progress',
  ERROR_THINKING_STARVED: 'error_thinking_starved',
  ERROR_OUTPUT_TRUNCATED: 'error_output_truncated',
  ERROR_NOT_VERIFIED: 'error_not_verified',
  ERROR_DURING_EXECUTION: 'error_during_execution',
  ERROR_SCHEMA_VALIDATION: 'error_schema_validation',
  ERROR_CONTENT_FILTERED: 'error_content_filtered',
  ERROR_PROVIDER_REJECTED: 'error_provider_rejected',
  GAVE_UP: 'gave_up',
  ERROR_HALTED: 'error_halted',
  ERROR_COMPACTION_FAILED: 'error_compaction_failed',
  ERROR_PROVIDER_AUTH: 'error_provider_auth',
  CANCELLED: 'cancelled',
  TERMINATED: 'terminated',
} as const);

/** The reason why a run ended. */
export type Termination = (typeof Termination)[keyof typeof Termination];

/** What to do after an ending. */
export const Category = Object.freeze({
  SUCCESS: 'success',
  RETRYABLE: 'retryable',
  CAPACITY: 'capacity',
  FATAL: 'fatal',
} as const);

/** What to do after an ending. */
export type Category = (typeof Category)[keyof typeof Category];

/** The reason why the model stopped one turn. */
export const SignalReason = Object.freeze({
  NATURAL_COMPLETION: 'natural_completion',
  TOKEN_LIMIT_REACHED: 'token_limit_reached',
  CONTENT_FILTERED: 'content_filtered',
  STOP_SEQUENCE: 'stop_sequence',
  ERROR_TERMINATION: 'error_termination',
  UNKNOWN: 'unknown',
  TOOL_USE: 'tool_use',
  PAUSED: 'paused',
  IN_PROGRESS: 'in_progress',
} as const);

/** The reason why the model stopped one turn. */
export type SignalReason = (typeof SignalReason)[keyof typeof SignalReason];

/** The confidence that a reason was read correctly. */
export const Confidence = Object.freeze({
  LOW: 'low',
  MEDIUM: 'medium',
  HIGH: 'high',
} as const);

/** The confidence that a reason was read correctly. */
export type Confidence = (typeof Confidence)[keyof typeof Confidence];

/** The class of a provider's error, the same for every provider. */
export const ErrorClass = Object.freeze({
  AUTHENTICATION: 'authentication',
  PERMISSION: 'permission',
  NOT_FOUND: 'not_found',
  INVALID_REQUEST: 'invalid_request',
  CONTEXT_LENGTH_EXCEEDED: 'context_length_exceeded',
  REQUEST_TOO_LARGE: 'request_too_large',
  CONTENT_POLICY: 'content_policy',
  QUOTA_EXHAUSTED: 'quota_exhausted',
  RATE_LIMIT: 'rate_limit',
  OVERLOADED: 'overloaded',
  SERVER_ERROR: 'server_error',
  TIMEOUT: 'timeout',
  INCOMPLETE_STREAM: 'incomplete_stream',
  CANCELLED: 'cancelled',
  UNKNOWN_ERROR: 'unknown_error',
} as const);

/** The class of a provider's error, the same for every provider. */
export type ErrorClass = (typeof ErrorClass)[keyof typeof ErrorClass];

/** The final status of a tool call. */
export const ToolStatus = Object.freeze({
  OK: 'ok',
  ERROR: 'error',
  DENIED: 'denied',
  TIMEOUT: 'timeout',
  ABORTED: 'aborted',
  SKIPPED: 'skipped',
} as const);

/** The final status of a tool call. */
export type ToolStatus = (typeof ToolStatus)[keyof typeof ToolStatus];

/** The value of each limit. Null switches the limit off; a duration is text with a unit, such as `10m`. */
export interface LimitValues {
  max_turns: number | null;
  max_tool_calls: number | null;
  max_budget_usd: number | null;
  max_tokens: number | null;
  max_tokens_counts: 'all' | 'uncached' | 'output';
  max_window: string | null;
  wait_for_window: boolean | null;
  max_rate: string | null;
  timeout: string | null;
  timeout_ms: number | null;
  thinking_timeout: string | null;
  thinking_timeout_ms: number | null;
  max_consecutive_mistakes: number | null;
  max_unproductive_turns: number | null;
  max_empty_turns: number | null;
  max_continuations: number | null;
  warn_model: boolean | null;
  accept_unknown_finish: boolean | null;
}

/** The names of limits. A duration also has a name with the suffix `_ms`, which takes a number. */
export type LimitName = keyof LimitValues;

/** `max_turns` as `maxTurns`. */
export type CamelCase<S extends string> = S extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : S;

/** Limits by name, in the spelling of JavaScript or of the kernel. */
export type Limits = {
  readonly [N in LimitName as N | CamelCase<N>]?: LimitValues[N] | undefined;
};
