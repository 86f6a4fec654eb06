export * from './langchain.js';
