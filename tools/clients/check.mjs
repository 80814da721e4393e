// The npm package `openai` against a running server: node check.mjs URL KEY
import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
const ask = { model: "demo", temperature: 0, messages: [{ role: "user", content: "What is 7 plus 5?" }] };
const expected = "7 plus 5 is 12.";

function check(name, found) {
  if (found !== expected) throw new Error(`${name}: found ${found}`);
  console.log(`ok    npm openai ${name}`);
}

const answer = await client.chat.completions.create(ask);
check("chat", answer.choices[0].message.content);
let text = "";
for await (const part of await client.chat.completions.create({ ...ask, stream: true }))
  text += part.choices[0]?.delta?.content ?? "";
check("chat, stream", text);
const response = await client.responses.create({ model: "demo", temperature: 0, input: "What is 7 plus 5?" });
check("responses", response.output_text);
