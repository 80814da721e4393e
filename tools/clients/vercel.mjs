// Runs Vercel's `ai` and its providers against a running server: node vercel.mjs URL KEY
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, streamText, tool } from "ai";

const [url, apiKey, device] = process.argv.slice(2);
const prompt = "What is 7 plus 5?";
const answer = "7 plus 5 is 12.";
const lamp = jsonSchema({
  type: "object",
  properties: { on: { type: "boolean" } },
  required: ["on"],
  additionalProperties: false,
});

function check(name, found, expected = true) {
  if (found !== expected) throw new Error(`${name}: found ${found}, expected ${expected}`);
  console.log(`ok    npm ai ${name}`);
}

const openai = createOpenAICompatible({
  name: "millrace",
  baseURL: `${url}/v1`,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey });
for (const [name, model] of [["openai-compatible", openai("demo")], ["anthropic", anthropic("demo")]]) {
  const ask = { model, prompt, temperature: 0, maxOutputTokens: 300, maxRetries: 0 };
  const whole = await generateText(ask);
  check(`${name}`, whole.text, answer);
  check(`${name}: reason`, whole.finishReason, "stop");
  const streamed = streamText(ask);
  let text = "";
  for await (const part of streamed.textStream) text += part;
  check(`${name}, stream`, text, answer);
  check(`${name}, stream: usage`, (await streamed.usage).outputTokens, whole.usage.outputTokens);
  const tools = { lamp: tool({ description: "Switch the lamp.", inputSchema: lamp, execute: ({ on }) => `is ${on}` }) };
  const called = await generateText({ ...ask, tools, toolChoice: "required" });
  check(`${name}: tool`, typeof called.toolCalls[0].input.on, "boolean");
  check(`${name}: tool's result`, called.toolResults[0].output, `is ${called.toolCalls[0].input.on}`);
  const calling = streamText({ ...ask, tools, toolChoice: { type: "tool", toolName: "lamp" } });
  check(`${name}: tool, stream`, typeof (await calling.toolCalls)[0].input.on, "boolean");
  const formed = await generateText({ ...ask, output: Output.object({ schema: lamp }) });
  check(`${name}: form`, typeof formed.output.on, "boolean");
}
if (device === "cpu") {
  const { embeddings } = await embedMany({ model: openai.embeddingModel("demo"), values: ["The dog ran.", "The dog went."] });
  const length = embeddings[0].reduce((sum, x) => sum + x * x, 0);
  check("openai-compatible: embeddings", Math.round(length * 1e4) / 1e4, 1);
}
