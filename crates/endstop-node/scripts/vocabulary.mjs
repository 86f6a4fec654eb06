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
const names = [...new Set(binding.limitNames())];
lines.push('/** The names of limits. A duration also has a name with the suffix `_ms`. */');
lines.push('export type LimitName =', ...names.map((name) => `  | '${name}'`));
lines[lines.length - 1] += ';';
lines.push(
  '',
  '/** A number, a duration such as `10m`, or null to switch the limit off. */',
  'export type LimitValue = number | string | boolean | null;',
  '',
  '/** `max_turns` as `maxTurns`. */',
  'export type CamelCase<S extends string> = S extends `${infer First}_${infer Rest}`',
  '  ? `${First}${Capitalize<CamelCase<Rest>>}`',
  '  : S;',
  '',
  '/** Limits by name, in the spelling of JavaScript or of the kernel. */',
  'export type Limits = {',
  '  readonly [N in LimitName | CamelCase<LimitName> | `${LimitName}_ms` | `${CamelCase<LimitName>}Ms`]?:',
  '    | LimitValue',
  '    | undefined;',
  '};',
);
console.log(lines.join('\n'));
