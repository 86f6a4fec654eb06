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

const polite = policy('polite', (step, context) => (context.step > 3 ? Verdict.stop('x') : (step.output ?? '').includes('Goodbye')));
const run = new Run({ limits: { maxTurns: 25, max_budget_usd: 2, timeout: '10m', timeoutMs: null }, policy: FINAL.or(polite) });
const turn: Turn = run.turn(found);
const outcome: Outcome | null = turn.outcome ?? run.outcome;
if (outcome?.termination === Termination.STOP) console.log(outcome.usage.inputTokens);
const guard = new Endstop({ maxTurns: 3, policy: 'final_pattern' });
const value: Promise<number> = guard.during(async () => 7);
void [wrong, value, record, tap];
