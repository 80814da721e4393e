// Runs the npm package `openai` against a running server: node check.mjs URL KEY DEVICE MODEL...
import OpenAI from "openai";

const [url, apiKey, device, ...models] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const ask = { model: "demo", temperature: 0, messages: [{ role: "user", content: "What is 7 plus 5?" }] };
const answer = "7 plus 5 is 12.";
const lamp = {
  type: "object",
  properties: { on: { type: "boolean" } },
  required: ["on"],
  additionalProperties: false,
};

function check(name, found, expected = true) {
  if (found !== expected) throw new Error(`${name}: found ${found}, expected ${expected}`);
  console.log(`ok    npm openai ${name}`);
}

async function refused(name, kind, call) {
  const error = await call().then(() => null, (error) => error);
  check(name, error instanceof kind);
  return error;
}

const chat = await client.chat.completions.create(ask);
check("chat", chat.choices[0].message.content, answer);
check("chat: reason", chat.choices[0].finish_reason, "stop");
let [text, usage] = ["", null];
const options = { ...ask, stream: true, stream_options: { include_usage: true } };
for await (const part of await client.chat.completions.create(options)) {
  text += part.choices[0]?.delta?.content ?? "";
  usage = part.usage ?? usage;
}
check("chat, stream", text, answer);
check("chat, stream: usage", usage.completion_tokens, chat.usage.completion_tokens);
const final = await client.chat.completions.stream(ask).finalChatCompletion();
check("chat, stream helper", final.choices[0].message.content, answer);

const leaving = await client.chat.completions.create({ ...ask, stream: true, ignore_eos: true, max_tokens: 400 });
let parts = 0;
for await (const _ of leaving) if (++parts === 3) break; // closes the connection
check("chat, stream: left", parts, 3);

const tools = [{ type: "function", function: { name: "lamp", parameters: lamp, strict: true } }];
const forced = { ...ask, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 300 };
const called = await client.chat.completions.create(forced);
check("tools", called.choices[0].message.tool_calls[0].function.name, "lamp");
check("tools: arguments", typeof JSON.parse(called.choices[0].message.tool_calls[0].function.arguments).on, "boolean");
const streamed = await client.chat.completions.stream(forced).finalChatCompletion();
check("tools, stream", streamed.choices[0].message.tool_calls[0].function.name, "lamp");
const schema = { type: "json_schema", json_schema: { name: "lamp", schema: lamp, strict: true } };
const formed = await client.chat.completions.create({ ...ask, response_format: schema });
check("schema", typeof JSON.parse(formed.choices[0].message.content).on, "boolean");

const prompt = { model: "demo", prompt: "Once upon a time", max_tokens: 4, temperature: 0 };
const whole = (await client.completions.create(prompt)).choices[0].text;
text = "";
for await (const part of await client.completions.create({ ...prompt, stream: true })) text += part.choices[0].text;
check("completions, stream", text, whole);

const input = { model: "demo", temperature: 0, input: "What is 7 plus 5?" };
check("responses", (await client.responses.create(input)).output_text, answer);
text = "";
for await (const event of await client.responses.create({ ...input, stream: true }))
  if (event.type === "response.output_text.delta") text += event.delta;
check("responses, stream", text, answer);
check("responses, stream helper", (await client.responses.stream(input).finalResponse()).output_text, answer);

const listed = [];
for await (const model of client.models.list()) listed.push(model.id);
check("models", listed.join(), models.join());
if (device === "cpu") {
  const vectors = await client.embeddings.create({ model: "demo", input: ["The dog ran.", "The dog went."] });
  const length = vectors.data[0].embedding.reduce((sum, x) => sum + x * x, 0);
  check("embeddings: length 1", Math.round(length * 1e4) / 1e4, 1);
}
const wrong = await refused("wrong field", OpenAI.BadRequestError, () =>
  client.chat.completions.create({ ...ask, temperature: -1 }));
check("wrong field is named", wrong.param, "temperature");
await refused("unknown model", OpenAI.NotFoundError, () => client.chat.completions.create({ ...ask, model: "other" }));
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
await refused("wrong key", OpenAI.AuthenticationError, () => stranger.models.list());
