// The entry for `import`. The code is that of the entry for `require`, so that both share the classes.

export * from './index.js';
