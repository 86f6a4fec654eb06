// What a program sees if the binary is missing, or is another version.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

let folder;
let binary;

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'endstop-'));
  const scope = join(folder, 'node_modules', '@endstop');
  cpSync(join('node_modules', '@endstop'), scope, { recursive: true });
  binary = join(scope, readdirSync(scope).find((name) => name.startsWith('node-')));
});
after(() => rmSync(folder, { recursive: true }));

function load(prelude = '') {
  const script = `${prelude}; try { require('@endstop/node') } catch (e) { console.log(e.name + ': ' + e.message) }`;
  return spawnSync(process.execPath, ['-e', script], { cwd: folder, encoding: 'utf8' }).stdout;
}

test('package loads without a message', () => assert.equal(load(), ''));

test('unknown platform names the known ones', () => {
  const found = load("Object.defineProperty(process, 'platform', { value: 'sunos' })");
  assert.match(found, /^LoadError: .*no binary for sunos.*linux-x64-gnu.*endstop-node\/check/);
});

test('other version names both', () => {
  const file = join(binary, 'package.json');
  const manifest = readFileSync(file, 'utf8');
  writeFileSync(file, manifest.replace(/"version": "[^"]*"/, '"version": "0.0.9"'));
  assert.match(load(), /^LoadError: .*0\.1\.0 found @endstop\/node-[a-z0-9-]+ 0\.0\.9/);
  writeFileSync(file, manifest);
});

test('copied code names the setting', () => {
  const bundle = join(folder, 'bundle');
  cpSync(join(folder, 'node_modules', '@endstop', 'node', 'dist'), join(bundle, 'dist'), { recursive: true });
  const script = "try { require('./bundle/dist/index.js') } catch (e) { console.log(e.name + ': ' + e.message) }";
  const run = () => spawnSync(process.execPath, ['-e', script], { cwd: folder, encoding: 'utf8' }).stdout;
  assert.match(run(), /^LoadError: .*mark @endstop\/node as external.*serverExternalPackages/);
  // The manifest of the program, whose version means nothing here.
  writeFileSync(join(bundle, 'package.json'), '{ "name": "program", "version": "7.0.0" }');
  assert.match(run(), /^LoadError: .*mark @endstop\/node as external/);
});

test('platforms without binaries get an error that names Node', () => {
  for (const condition of ['edge-light', 'workerd', 'browser']) {
    for (const entry of Object.keys(JSON.parse(readFileSync(join(folder, 'node_modules/@endstop/node/package.json'), 'utf8')).exports)) {
      if (entry.endsWith('.json')) continue;
      const name = join('@endstop/node', entry);
      for (const script of [`try { require('${name}') } catch (e) { console.log(e.name + ': ' + e.message) }`, `import('${name}').catch((e) => console.log(e.name + ': ' + e.message))`]) {
        const { stdout } = spawnSync(process.execPath, ['--conditions', condition, '-e', script], { cwd: folder, encoding: 'utf8' });
        assert.match(stdout, /^LoadError: .*cannot load.*runtime = 'nodejs'/, `${name} ${condition}`);
      }
    }
  }
});

test('a binary that cannot be loaded says why', () => {
  const file = join(binary, readdirSync(binary).find((name) => name.endsWith('.node')));
  const bytes = readFileSync(file);
  writeFileSync(file, 'not a library');
  assert.match(load(), /^LoadError: the binary .* cannot be loaded: ./);
  writeFileSync(file, bytes);
});

test('missing permissions name the flags', () => {
  const refused = (name, code) => `
    const Module = require('node:module');
    const load = Module._load;
    Module._load = (id, ...rest) => {
      if (/node-[a-z0-9-]+$/.test(id)) throw Object.assign(new Error('no'), { name: '${name}', code: '${code}' });
      return load(id, ...rest);
    }`;
  assert.match(load(refused('NotCapable', '')), /^LoadError: .*--allow-addons/);
  assert.match(load(refused('Error', 'ERR_DLOPEN_DISABLED')), /^LoadError: .*--allow-addons/);
  assert.match(load(`globalThis.Deno = {}; ${refused('NotCapable', '')}`), /^LoadError: .*--allow-ffi/);
});

test('missing binary names the option', () => {
  rmSync(binary, { recursive: true });
  assert.match(load(), /^LoadError: .*is missing.*--omit=optional/);
});
