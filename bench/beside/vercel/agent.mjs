import { stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";

const openai = createOpenAI();                      // OPENAI_API_KEY, OPENAI_BASE_URL
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string().describe("The city's name.") }),
  execute: async ({ city }) => `It rains in ${city}.`,
});
const run = streamText({
  model: openai.chat(process.argv[2]),
  system: "Be brief.",
  prompt: "What is the weather in Paris?",
  tools: { weather },
  stopWhen: stepCountIs(10),
  onError: ({ error }) => console.error(`error: ${error}`),
});
for await (const text of run.textStream) process.stdout.write(text);
console.log(`\n[${await run.finishReason}, ${(await run.totalUsage).totalTokens} tokens]`);
