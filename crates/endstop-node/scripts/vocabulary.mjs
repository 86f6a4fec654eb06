// Writes ts/vocabulary.ts from the kernel's tables: node scripts/vocabulary.mjs PATH-OF-THE-BINDING
import { createRequire } from 'node:module';

const binding = createRequire(import.meta.url)(process.argv[2]);
const ABOUT = {
  Termination: 'The reason why a run ended.',
  Category: 'What to do after an ending.',
  SignalReason: 'The reason why the model stopped one turn.',
  Confidence: 'The confidence that a reason was read correctly.',
  ErrorClass: "The class of a provider's error, the same for every provider.",
  ToolStatus: 'The final status of a tool call.',
};
const lines = [
  '// The vocabulary of endings. Written by scripts/vocabulary.mjs from the tables of the kernel.',
  '',
];
for (const { name, values } of binding.members()) {
  lines.push(`/** ${ABOUT[name]} */`, `export const ${name} = Object.freeze({`);
  for (const value of values) lines.push(`  ${value.toUpperCase()}: '${value}',`);
  lines.push('} as const);', '', `/** ${ABOUT[name]} */`);
  lines.push(`export type ${name} = (typeof ${name})[keyof typeof ${name}];`, '');
}
const VALUES = { count: 'number | null', usd: 'number | null', switch: 'boolean | null', text: 'string | null' };
const limits = binding.limitTable().filter((limit) => limit.obstacle === null);
lines.push('/** The value of each limit. Null switches the limit off; a duration is text with a unit, such as `10m`. */');
lines.push('export interface LimitValues {');
for (const { name, kind, choices } of limits) {
  if (kind === 'time') lines.push(`  ${name}: string | null;`, `  ${name}_ms: number | null;`);
  else lines.push(`  ${name}: ${kind === 'choice' ? choices.map((one) => `'${one}'`).join(' | ') : VALUES[kind]};`);
}
lines.push(
  '}',
  '',
  '/** The names of limits. A duration also has a name with the suffix `_ms`, which takes a number. */',
  'export type LimitName = keyof LimitValues;',
  '',
  '/** `max_turns` as `maxTurns`. */',
  'export type CamelCase<S extends string> = S extends `${infer First}_${infer Rest}`',
  '  ? `${First}${Capitalize<CamelCase<Rest>>}`',
  '  : S;',
  '',
  '/** Limits by name, in the spelling of JavaScript or of the kernel. */',
  'export type Limits = {',
  '  readonly [N in LimitName as N | CamelCase<N>]?: LimitValues[N] | undefined;',
  '};',
);
console.log(lines.join('\n'));
