// The official SDKs of node: whole answers, calls, and streams that wait and are told of their place in the queue.

import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const url = process.env.GREENROOM_URL;
const model = "greenroom-demo";
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 0 });
// The key of the others, since another client would get a place at once: answers of the first pause for it.
const ollama = new Ollama({ host: url, headers: { Authorization: "Bearer any" } });
const hello = [{ role: "user", content: "Hello" }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

test("openai: a chat, a call and a response", async () => {
  const chat = await openai.chat.completions.create({ model, messages: hello, max_tokens: 16 });
  assert.ok(chat.choices[0].message.content);
  const call = await openai.chat.completions.create({
    model,
    messages: weather,
    tools: [{ type: "function", function: { name: "get_weather", parameters: schema } }],
    tool_choice: "required",
  });
  assert.equal(typeof JSON.parse(call.choices[0].message.tool_calls[0].function.arguments).city, "string");
  const response = await openai.responses.create({ model, input: "Hello", max_output_tokens: 16 });
  assert.equal((await openai.responses.retrieve(response.id)).id, response.id);
  assert.ok((await openai.models.list()).data.some((each) => each.id === model));
});

test("anthropic: a message, a call and the number of tokens", async () => {
  const message = await anthropic.messages.create({ model, messages: hello, max_tokens: 16 });
  assert.ok(message.usage.input_tokens > 0);
  const call = await anthropic.messages.create({
    model,
    messages: weather,
    max_tokens: 512,
    tools: [{ name: "get_weather", input_schema: schema }],
    tool_choice: { type: "any" },
  });
  assert.equal(typeof call.content.find((block) => block.type === "tool_use").input.city, "string");
  const counted = await anthropic.messages.countTokens({ model, messages: hello });
  const { input_tokens, cache_read_input_tokens } = message.usage;
  assert.equal(counted.input_tokens, input_tokens + cache_read_input_tokens);
});

test("ollama: a chat, a list, and a model that is kept", async () => {
  const chat = await ollama.chat({ model, messages: hello, options: { num_predict: 16 }, keep_alive: "5m" });
  assert.ok(chat.done);
  assert.ok((await ollama.list()).models.some((each) => each.name === model));
  const [running] = (await ollama.ps()).models;
  const minutes = (new Date(running.expires_at) - Date.now()) / 60_000;
  assert.ok(minutes > 0 && minutes <= 5, `${minutes}`);
});

// Streams that take all places, until `free` is called.
async function holders(places) {
  const stop = new AbortController();
  const started = Array.from({ length: places }, async () => {
    const asked = { model, messages: hello, stream: true, max_tokens: 1900, ignore_eos: true };
    const stream = await openai.chat.completions.create(asked, { signal: stop.signal });
    const chunks = stream[Symbol.asyncIterator]();
    await chunks.next();
    const read = async () => {
      try {
        while (!(await chunks.next()).done);
      } catch (error) {
        if (!stop.signal.aborted) throw error;
      }
    };
    return { ended: read() };
  });
  const running = await Promise.all(started);
  return async () => {
    stop.abort();
    await Promise.all(running.map((each) => each.ended));
  };
}

test("streams that wait learn their place, and read on", async () => {
  const free = await holders(32);
  const told = {};
  let allTold;
  const everybody = new Promise((resolve) => (allTold = resolve));
  const tell = (name, status) => {
    if (status === undefined || name in told) return;
    told[name] = status;
    if (Object.keys(told).length === 3) allTold();
  };

  async function chat() {
    const options = { include_usage: true, include_status: true };
    const asked = { model, messages: hello, stream: true, max_tokens: 8, stream_options: options };
    let usage;
    for await (const chunk of await openai.chat.completions.create(asked)) {
      tell("chat", chunk.queue_status);
      usage = chunk.usage ?? usage;
    }
    assert.ok(usage.completion_tokens > 0);
  }

  async function response() {
    const stream = openai.responses.stream({ model, input: "Hello", max_output_tokens: 8 });
    for await (const event of stream) {
      assert.ok(event.type === "response.in_progress" || event.queue_status === undefined);
      tell("response", event.queue_status);
    }
    assert.ok((await stream.finalResponse()).usage.output_tokens > 0);
  }

  async function message() {
    const stream = anthropic.messages.stream({ model, messages: hello, max_tokens: 8 });
    assert.ok((await stream.finalMessage()).usage.output_tokens > 0);
  }

  async function lines() {
    let last;
    for await (const part of await ollama.chat({ model, messages: hello, stream: true, options: { num_predict: 8 } })) {
      tell("lines", part.queue_status);
      last = part;
    }
    assert.ok(last.done);
  }

  const reading = [chat(), response(), message(), lines()];
  await Promise.race([everybody, Promise.all(reading)]);
  await free();
  await Promise.all(reading);
  assert.deepEqual(Object.values(told).map((status) => [status.status, status.model]), Array(3).fill(["queued", model]));
});
