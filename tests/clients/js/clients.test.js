// The clients of OpenAI and Anthropic, and Vercel's AI SDK, on the server at REFRAIN_URL.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const url = process.env.REFRAIN_URL;
const model = "smollm2";
const messages = [{ role: "user", content: "Name one river, and nothing else." }];
const city = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const longPrompt = (name) => `${name}: ${"a long text, ".repeat(60)} and now an answer`;

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const limits = { model, messages, temperature: 0, max_tokens: 16 };

test("openai: a stream is the whole answer, with its usage", async () => {
  const whole = await openai.chat.completions.create(limits);
  const stream = await openai.chat.completions.create({
    ...limits,
    stream: true,
    stream_options: { include_usage: true },
  });
  let [text, usage] = ["", null];
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.ok(text.length > 0);
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("openai: the runner calls a tool, and goes on", async () => {
  const called = [];
  const runner = openai.chat.completions.runTools(
    {
      ...limits,
      max_tokens: 64,
      tool_choice: { type: "function", function: { name: "weather" } },
      tools: [
        {
          type: "function",
          function: {
            name: "weather",
            parameters: city,
            parse: JSON.parse,
            function: ({ city }) => called.push(city) && "rain",
          },
        },
      ],
    },
    { maxChatCompletions: 2 },
  );
  await runner.done().catch(() => {});
  assert.ok(["Paris", "Rome"].includes(called[0]), called);
});

test("openai: models are listed, and a wrong field is an error that names it", async () => {
  const list = await openai.models.list();
  assert.deepEqual(list.data.map((one) => one.id), [model]);
  await assert.rejects(openai.chat.completions.create({ ...limits, temperature: 7 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    return error.param === "temperature";
  });
});

const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });

test("anthropic: a stream is the whole answer", async () => {
  const whole = await anthropic.messages.create(limits);
  const stream = anthropic.messages.stream(limits);
  const streamed = await stream.finalMessage();
  assert.ok(whole.content[0].text.length > 0);
  assert.deepEqual(streamed.content, whole.content);
  assert.equal(streamed.stop_reason, whole.stop_reason);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
});

test("anthropic: a call that must be made fits the tool", async () => {
  const message = await anthropic.messages.create({
    ...limits,
    max_tokens: 64,
    tools: [{ name: "weather", input_schema: city }],
    tool_choice: { type: "tool", name: "weather" },
  });
  const call = message.content.find((block) => block.type === "tool_use");
  assert.ok(["Paris", "Rome"].includes(call.input.city));
  assert.equal(message.stop_reason, "tool_use");
});

test("anthropic: models are listed in its own shape", async () => {
  const names = [];
  for await (const one of anthropic.models.list()) names.push(one.id);
  assert.deepEqual(names, [model]);
  assert.equal((await anthropic.models.retrieve(model)).type, "model");
});

const providers = {
  "openai-compatible": createOpenAICompatible({
    name: "refrain",
    baseURL: `${url}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })(model),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })(model),
};

for (const [name, served] of Object.entries(providers)) {
  const asked = { model: served, temperature: 0, maxOutputTokens: 16, maxRetries: 0 };

  test(`ai, ${name}: a stream is the whole answer, with its usage`, async () => {
    const whole = await generateText({ ...asked, messages });
    const stream = streamText({ ...asked, messages });
    assert.ok(whole.text.length > 0);
    assert.equal(await stream.text, whole.text);
    const usage = await stream.usage;
    assert.ok(usage.inputTokens > 0);
    assert.equal(usage.outputTokens, whole.usage.outputTokens);
  });

  test(`ai, ${name}: what was reused is in the usage`, async () => {
    const prompt = longPrompt(name);
    await generateText({ ...asked, prompt });
    const { usage } = await generateText({ ...asked, prompt });
    const cached = usage.inputTokenDetails?.cacheReadTokens ?? usage.cachedInputTokens;
    assert.ok(cached > 200, JSON.stringify(usage));
  });

  test(`ai, ${name}: a call that must be made fits the tool`, async () => {
    const { toolCalls } = await generateText({
      ...asked,
      messages,
      maxOutputTokens: 64,
      tools: { weather: tool({ inputSchema: jsonSchema(city) }) },
      toolChoice: { type: "tool", toolName: "weather" },
    });
    assert.ok(["Paris", "Rome"].includes(toolCalls[0].input.city));
  });

  test(`ai, ${name}: an object has the schema`, async () => {
    const { object } = await generateObject({
      ...asked,
      maxOutputTokens: 64,
      prompt: "Which city?",
      schema: jsonSchema(city),
    });
    assert.ok(["Paris", "Rome"].includes(object.city));
  });
}
