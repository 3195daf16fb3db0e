// A server or a client on Node: `node peer.mjs serve|call OPTIONS`, with the orders of `peers/__main__.py`.
//
// It does what a program on the TypeScript SDK (@a2a-js/sdk, A2A 0.3) does that speaks the wire `a2a-nats/1` over core
// NATS: the SDK's JSON-RPC handler and client, and between them a transport as docs/binding.md describes it.

import { createInterface } from "node:readline";
import { randomUUID } from "node:crypto";
import { Client } from "@a2a-js/sdk/client";
import { DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler } from "@a2a-js/sdk/server";
import { connect, createInbox } from "@nats-io/transport-node";

const PROTOCOL = "a2a-nats/1";
const CALL_TIMEOUT = 30_000;
const LEAST = 3; // as in load.py
const EVENTS = 4; // as in sdk.py
const CARD = {
  name: "instant", description: "Answers at once.", version: "1", protocolVersion: "0.3.0", url: "",
  preferredTransport: "NATS", capabilities: { streaming: true }, defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "answer", name: "answer", description: "Answers.", tags: ["answer"] }],
};

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

// ── the agent: what agent.py's does ────────────────────────────────────────────────────────────────────

const echo = (asked) => ({
  kind: "message", role: "agent", messageId: randomUUID(), contextId: randomUUID(),
  parts: [{ kind: "text", text: asked.parts[0].text }],
});
const artifact = (asked) => ({
  artifactId: randomUUID(), parts: [{ kind: "text", text: asked.parts[0].text }],
});
const task = (asked, id, contextId, state) => ({
  kind: "task", id, contextId, status: { state }, history: [asked], artifacts: [],
});
const status = ({ id, contextId }, state, final) => ({
  kind: "status-update", taskId: id, contextId, status: { state }, final,
});

function* events(asked, id, contextId) {
  const work = asked.parts[0].text.split(" ", 1)[0];
  if (work === "message") {
    yield echo(asked);
    return;
  }
  const begun = task(asked, id, contextId, "submitted");
  if (work === "task") {
    begun.artifacts.push(artifact(asked));
    yield begun;
  } else {
    yield begun;
    yield status(begun, "working", false);
    yield { kind: "artifact-update", taskId: id, contextId, artifact: artifact(asked), lastChunk: true };
  }
  yield status(begun, "completed", true);
}

class TrivialHandler {
  async getAgentCard() {
    return CARD;
  }

  async sendMessage({ message }) {
    if (message.parts[0].text.startsWith("message ")) return echo(message);
    const done = task(message, randomUUID(), randomUUID(), "completed");
    done.artifacts.push(artifact(message));
    return done;
  }

  async *sendMessageStream({ message }) {
    yield* events(message, randomUUID(), randomUUID());
  }
}

const executor = {
  async execute({ userMessage, taskId, contextId }, bus) {
    for (const event of events(userMessage, taskId, contextId)) bus.publish(event);
    bus.finished();
  },
  async cancelTask() {},
};

// ── the server's side of the wire ──────────────────────────────────────────────────────────────────────

async function serve(options) {
  const connection = await connect({ servers: options.bus });
  const handler = new JsonRpcTransportHandler(
    options.handler === "sdk"
      ? new DefaultRequestHandler(CARD, new InMemoryTaskStore(), executor)
      : new TrivialHandler(),
  );
  const answer = async (message) => {
    const { request } = message.json();
    const result = await handler.handle(request);
    if (typeof result[Symbol.asyncIterator] !== "function") {
      message.respond(JSON.stringify(result));
      return;
    }
    for await (const response of result) {
      message.respond(JSON.stringify({ protocol: PROTOCOL, kind: "response", response }));
    }
    message.respond(JSON.stringify({ protocol: PROTOCOL, kind: "complete", id: request.id }));
  };
  const subject = `a2a.agent.${options.name}.rpc`;
  connection.subscribe(subject, { callback: (error, message) => void answer(message) });
  await connection.flush();
  say({ address: subject });
  for await (const _ of process.stdin);
  await connection.close();
}

// ── the client's side of the wire ──────────────────────────────────────────────────────────────────────

class NatsTransport {
  #connection;
  #subject;
  #last = 0;

  constructor(connection, subject) {
    this.#connection = connection;
    this.#subject = subject;
  }

  #frame(method, params) {
    const id = ++this.#last;
    return JSON.stringify({ protocol: PROTOCOL, request: { jsonrpc: "2.0", method, params, id } });
  }

  async sendMessage(params) {
    const sent = this.#frame("message/send", params);
    const answer = await this.#connection.request(this.#subject, sent, { timeout: CALL_TIMEOUT });
    const { result, error } = answer.json();
    if (error) throw new Error(error.message);
    return result;
  }

  async *sendMessageStream(params) {
    const inbox = createInbox();
    const frames = this.#connection.subscribe(inbox);
    try {
      await this.#connection.flush();
      this.#connection.publish(this.#subject, this.#frame("message/stream", params), { reply: inbox });
      for await (const message of frames) {
        const frame = message.json();
        if (frame.kind === "complete") return;
        if (frame.kind !== "response" || frame.response.error) throw new Error(message.string());
        yield frame.response.result;
      }
    } finally {
      frames.unsubscribe();
    }
  }
}

const request = (text) => ({
  message: { kind: "message", role: "user", messageId: randomUUID(), parts: [{ kind: "text", text }] },
});

// One turn, as load.py does it.
async function turn(client, order) {
  const text = `${order.work} `.padEnd(order.size, "x");
  const took = [], firsts = [];
  let started = 0;
  const begin = performance.now();
  const another = () => {
    const late = performance.now() - begin >= 1000 * order.seconds;
    if (late && started >= LEAST * order.concurrency) return false;
    if (order.limit && started >= order.limit) return false;
    started += 1;
    return true;
  };
  const unary = async () => {
    const answer = await client.sendMessage(request(text));
    if (answer.kind !== order.work) throw new Error(`no ${order.work} came back`);
  };
  const stream = async () => {
    const asked = performance.now();
    let count = 0;
    for await (const _ of client.sendMessageStream(request(text))) {
      if (count++ === 0) firsts.push(performance.now() - asked);
    }
    if (count !== EVENTS) throw new Error(`${count} events instead of ${EVENTS}`);
  };
  const repeat = async () => {
    while (another()) {
      const asked = performance.now();
      await (order.work === "stream" ? stream() : unary());
      took.push(performance.now() - asked);
    }
  };
  await Promise.all(Array.from({ length: order.concurrency }, repeat));
  const all = performance.now() - begin;
  return {
    count: took.length, rate: (1000 * took.length) / all, mean: took.reduce((sum, each) => sum + each, 0) / took.length,
    p50: rank(took, 0.5), p99: rank(took, 0.99), first_p50: rank(firsts, 0.5), first_p99: rank(firsts, 0.99),
  };
}

function rank(values, share) {
  const ordered = values.toSorted((one, other) => one - other);
  return ordered.length ? ordered[Math.max(0, Math.ceil(share * ordered.length) - 1)] : 0;
}

async function call(options) {
  const connection = await connect({ servers: options.bus });
  const client = new Client(new NatsTransport(connection, options.address), CARD);
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      say(await turn(client, JSON.parse(line)));
    } catch (error) {
      say({ error: `${error.name}: ${error.message}`.split("\n", 1)[0].slice(0, 500) });
    }
  }
  await connection.close();
}

const [role, options] = [process.argv[2], JSON.parse(process.argv[3])];
await (role === "serve" ? serve : call)(options);
