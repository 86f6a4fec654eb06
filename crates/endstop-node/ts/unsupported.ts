// The package on platforms that cannot load a binary: edge runtimes, workers and browsers. The conditions
// `edge-light`, `workerd` and `browser` of package.json select this file for every entry.

import { LoadError } from './errors.js';

throw new LoadError(
  '@endstop/node has a compiled half, which edge runtimes, Cloudflare workers and browsers cannot load: import it in code ' +
    "that runs on Node.js (in Next.js a route with `export const runtime = 'nodejs'`, and no client component)",
);
