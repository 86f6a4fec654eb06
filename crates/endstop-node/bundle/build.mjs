// Bundles program.mjs with each bundler, runs the bundles, and compares what they print.
//
//   node build.mjs NODE        # NODE runs the bundles
//
// Each bundler makes ESM and CommonJS from a program that imports, and CommonJS from one that requires.
// The settings are those of docs/src/node.md. A second round forgets them: the bundle must then fail
// with an error, and the one of the package must name the setting.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import commonjs from '@rollup/plugin-commonjs';
import resolve from '@rollup/plugin-node-resolve';
import * as esbuild from 'esbuild';
import { rollup } from 'rollup';
import * as vite from 'vite';
import webpack from 'webpack';

const node = process.argv[2];
const here = dirname(fileURLToPath(import.meta.url));
const EXPECTED = '{"reason":"token_limit_reached","ending":"error_output_truncated","isStopped":true}';
/** The source's modules and the bundle's. */
const CASES = [['import', 'esm'], ['import', 'cjs'], ['require', 'cjs']];
/** What a bundle without the setting fails with; ESM with `require` in it may fail before the package's first line. */
const REFUSED = /mark @endstop\/node as external|Dynamic require of|require is not defined/;
const OURS = /^@endstop\/node(\/|$)/;

const BUNDLERS = {
  async esbuild(source, output, format, isExternal) {
    const external = isExternal ? ['@endstop/node'] : [];
    await esbuild.build({ entryPoints: [source], bundle: true, platform: 'node', format, outfile: output, external, logLevel: 'error' });
  },
  async webpack(source, output, format, isExternal) {
    const isModule = format === 'esm';
    const settings = {
      mode: 'production',
      target: 'node18',
      entry: source,
      output: { path: dirname(output), filename: output.slice(dirname(output).length + 1), ...(isModule ? { library: { type: 'module' } } : {}) },
      experiments: { outputModule: isModule },
      ...(isExternal ? { externals: [OURS], externalsType: isModule ? 'module' : 'commonjs' } : {}),
    };
    const stats = await new Promise((done, failed) => webpack(settings, (problem, result) => (problem ? failed(problem) : done(result))));
    if (stats.hasErrors()) throw new Error(stats.toString({ all: false, errors: true }));
  },
  async rollup(source, output, format, isExternal) {
    const external = isExternal ? [OURS] : [];
    const plugins = [resolve({ preferBuiltins: true }), commonjs({ ignoreDynamicRequires: true })];
    const bundle = await rollup({ input: source, external, plugins, onwarn: () => {} });
    await bundle.write({ file: output, format });
    await bundle.close();
  },
  async vite(source, output, format, isExternal) {
    await vite.build({
      root: here,
      configFile: false,
      logLevel: 'silent',
      // A dependency is external by default; `noExternal` is what makes the setting necessary.
      ssr: { noExternal: true, ...(isExternal ? { external: ['@endstop/node'] } : {}) },
      build: {
        ssr: source,
        outDir: dirname(output),
        emptyOutDir: false,
        rollupOptions: { output: { format, entryFileNames: output.slice(dirname(output).length + 1) } },
      },
    });
  },
};

/** Runs a bundle, and returns what it printed, or its error. */
function run(file) {
  const { status, stdout, stderr } = spawnSync(node, [file], { encoding: 'utf8', cwd: here });
  if (status === 0) return stdout.trim();
  const lines = stderr.split('\n');
  const line = lines.find((one) => REFUSED.test(one)) ?? lines.find((one) => /Error\b.*: /.test(one)) ?? stderr;
  return `failed: ${line.trim()}`;
}

const program = readFileSync(join(here, 'program.mjs'), 'utf8');
const required = program.replace(/^import (\{.*\}) from ('.*');$/gm, 'const $1 = require($2);');
writeFileSync(join(here, 'program.cjs'), required);
rmSync(join(here, 'out'), { recursive: true, force: true });
mkdirSync(join(here, 'out'));

console.log(`bundles run by Node ${execFileSync(node, ['--version'], { encoding: 'utf8' }).trim()}`);
let failed = 0;
for (const isExternal of [true, false]) {
  for (const [name, bundle] of Object.entries(BUNDLERS)) {
    for (const [modules, format] of CASES) {
      const source = join(here, modules === 'import' ? 'program.mjs' : 'program.cjs');
      const output = join(here, 'out', `${name}-${modules}${isExternal ? '' : '-inside'}.${format === 'esm' ? 'mjs' : 'cjs'}`);
      let found;
      try {
        await bundle(source, output, format, isExternal);
        found = run(output);
      } catch (problem) {
        found = `not bundled: ${problem.message.split('\n')[0]}`;
      }
      const isRight = isExternal ? found === EXPECTED : REFUSED.test(found);
      if (!isRight) failed += 1;
      console.log(`${isRight ? 'ok    ' : 'WRONG '} ${name.padEnd(8)} ${modules.padEnd(7)} to ${format}${isExternal ? '' : ', not external'}: ${found}`);
    }
  }
}
console.log(`${failed} of ${2 * CASES.length * Object.keys(BUNDLERS).length} bundles were wrong`);
process.exit(failed === 0 ? 0 : 1);
