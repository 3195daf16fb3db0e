// The JavaScript SDK's own client against an agent: node client.mjs URL KEY BINDING. Prints what it saw, as JSON.
import { randomUUID } from 'node:crypto';
import {
  CancelTaskRequest,
  GetTaskRequest,
  SendMessageRequest,
  StreamResponse,
  Task,
} from '@a2a-js/sdk';
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [url, key, binding] = process.argv.slice(2);
const authorization = `Bearer ${key}`;
const fetchImpl = (where, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('authorization', authorization);
  return fetch(where, { ...init, headers });
};
const transports = {
  JSONRPC: new JsonRpcTransportFactory({ fetchImpl }),
  'HTTP+JSON': new RestTransportFactory({ fetchImpl }),
  GRPC: new GrpcTransportFactory(),
};
const factory = new ClientFactory({
  transports: [transports[binding]],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const client = await factory.createFromUrl(`${url}/`);
const options = { serviceParameters: { authorization } };

const ask = (name, more = {}) =>
  SendMessageRequest.fromJSON({
    message: {
      messageId: `tck-${name}-${randomUUID().slice(0, 8)}`,
      role: 'ROLE_USER',
      parts: [{ text: 'do it' }],
      ...more,
    },
  });

const seen = { streamed: [] };
for await (const event of client.sendMessageStream(ask('stream-001'), options)) {
  seen.streamed.push(StreamResponse.toJSON(event));
}
const asked = await client.sendMessage(ask('input-required'), options);
seen.asked = Task.toJSON(asked);
const answered = await client.sendMessage(ask('complete-task', { taskId: asked.id }), options);
seen.answered = Task.toJSON(answered);
seen.got = Task.toJSON(await client.getTask(GetTaskRequest.fromJSON({ id: asked.id }), options));
const other = await client.sendMessage(ask('input-required'), options);
const canceled = await client.cancelTask(CancelTaskRequest.fromJSON({ id: other.id }), options);
seen.canceled = Task.toJSON(canceled);
try {
  await client.getTask(GetTaskRequest.fromJSON({ id: 'nothing' }), options);
} catch (error) {
  seen.missing = error.constructor.name;
}
console.log(JSON.stringify(seen));
