// Compiled with `tsc --strict`, and not run: the types that a program sees by `import`.
import { detect, type Detection, FINAL, type Outcome, policy, Run, SignalReason, Termination, type Turn, Verdict } from '@endstop/node';
import { record, tap } from '@endstop/node/tap';
import { Endstop } from '@endstop/node/ai-sdk';

const found: Detection = detect('{}', { api: 'openai-chat', status: 200, headers: new Headers() });
const reason: SignalReason = found.reason;
if (reason === SignalReason.TOKEN_LIMIT_REACHED) console.log(found.calls[0]?.args?.['text']);
// @ts-expect-error a reason is one of the vocabulary
const wrong: SignalReason = 'tired';
// @ts-expect-error a detection is frozen
found.text = 'x';
// @ts-expect-error a limit is one of the table
new Run({ limits: { maxTurn: 3 } });

// @ts-expect-error a time has a unit
new Run({ timeout: 30_000 });
// @ts-expect-error milliseconds are a number
new Run({ timeoutMs: '30s' });
// @ts-expect-error a number of turns is not a string
new Run({ maxTurns: '3' });
// @ts-expect-error limits are in `limits`, or options
new Run({ limit: { maxTurns: 3 } });
// @ts-expect-error a function alone is not a policy
new Run({ policy: () => true });
// @ts-expect-error a policy cannot wait
policy('late', async () => true);
policy('quiet', (step) => { console.log(step.output); });
// @ts-expect-error a response must have arrived
new Run().turn(Promise.resolve({ choices: [] }));
// @ts-expect-error so must a chunk
detect([Promise.resolve('{}')]);
// @ts-expect-error limits of another loop have no effect
new Run({ verifyRounds: 3 });
interface Completion { id: string; choices: { finish_reason: string }[] }
const completion: Completion = { id: 'x', choices: [] };
const chunks: Completion[] = [completion];
const unknown: object = completion;
void [new Run().turn(completion), detect(chunks), detect(unknown), detect({ ...completion, then: undefined }), detect(new Uint8Array(1))];
new Run({ maxTurns: 3, policy: { any: ['final_pattern', { confidence: {} }] }, limits: { timeoutMs: 30_000, max_turns: undefined } });

const polite = policy('polite', (step, context) => (context.step > 3 ? Verdict.stop('x') : (step.output ?? '').includes('Goodbye')));
const run = new Run({ limits: { maxTurns: 25, max_budget_usd: 2, timeout: '10m', max_tokens_counts: 'output' }, policy: FINAL.or(polite) });
const turn: Turn = run.turn(found);
const outcome: Outcome | null = turn.outcome ?? run.outcome;
if (outcome?.termination === Termination.STOP) console.log(outcome.usage.inputTokens);
const guard = new Endstop({ maxTurns: 3, policy: 'final_pattern' });
const value: Promise<number> = guard.during(async () => 7);
void [wrong, value, record, tap];
