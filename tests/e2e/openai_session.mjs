// One session of OpenAI's client for Node: chat, a stream, a call of a function, and an answer that is parsed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [baseURL, modules] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/`));
const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: "any", maxRetries: 0 });

const light = {
  type: "function",
  function: {
    name: "switch_light_state",
    description: "Switch a light.",
    parameters: {
      type: "object",
      properties: { place: { type: "string" }, status: { type: "string", enum: ["on", "off"] } },
      required: ["place", "status"],
    },
  },
};
const question = [{ role: "user", content: "What is the capital of France?" }];
const request = [{ role: "user", content: "Could you turn the garden light on?" }];
const schema = {
  type: "object",
  properties: { place: { enum: ["garden", "kitchen"] } },
  required: ["place"],
  additionalProperties: false,
};

const chat = await client.chat.completions.create({ model: "small", messages: question, max_tokens: 16 });
let streamed = "";
for await (const chunk of await client.chat.completions.create({
  model: "small", messages: question, max_tokens: 16, stream: true,
})) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
const called = await client.chat.completions
  .stream({ model: "small", messages: request, tools: [light] })
  .finalChatCompletion();
const parsed = await client.chat.completions.parse({
  model: "small",
  messages: request,
  response_format: { type: "json_schema", json_schema: { name: "place", strict: true, schema } },
});
let refused = null;
try {
  await client.chat.completions.create({ model: "gpt-4", messages: question });
} catch (error) {
  refused = { status: error.status, code: error.code, kind: error.constructor.name };
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(
  JSON.stringify({
    chat: chat.choices[0].message.content,
    streamed,
    call: called.choices[0].message.tool_calls[0].function,
    finish: called.choices[0].finish_reason,
    answer: parsed.choices[0].message.content,
    refused,
    models,
  }),
);
