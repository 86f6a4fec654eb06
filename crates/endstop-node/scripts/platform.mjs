// Makes the package of a platform: node scripts/platform.mjs BINARY linux-x64-gnu FOLDER
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [binary, platform, folder] = process.argv.slice(2);
const main = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const [os, cpu, abi] = platform.split('-');
const manifest = {
  name: `${main.name}-${platform}`,
  version: main.version,
  description: `The binary of ${main.name} for ${platform}.`,
  license: main.license,
  repository: main.repository,
  engines: main.engines,
  os: [os],
  cpu: [cpu],
  ...(abi === 'gnu' ? { libc: ['glibc'] } : abi === 'musl' ? { libc: ['musl'] } : {}),
  main: `endstop.${platform}.node`,
  files: [`endstop.${platform}.node`, 'LICENSE-*'],
};
const root = new URL('../../../', import.meta.url);
for (const file of ['LICENSE-APACHE', 'LICENSE-MIT']) copyFileSync(new URL(file, root), join(folder, file));
copyFileSync(binary, join(folder, manifest.main));
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
