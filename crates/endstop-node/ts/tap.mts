export * from './tap.js';
