// Compiled with `tsc --strict`, and not run: the types that a program sees by `require`.
import endstop = require('@endstop/node');
import agents = require('@endstop/node/openai-agents');

const outcome: endstop.Outcome = new endstop.Run().close(true, 'x');
const category: endstop.Category = outcome.category;
const guard = new agents.Endstop({ maxTurns: 3 });
void [category, guard.outcome];
