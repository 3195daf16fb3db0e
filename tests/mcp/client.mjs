// A client of MCP by the official TypeScript SDK: lists the tools, calls one for each line that it reads.
//   node client.mjs PACKAGE MODE URL KEY
import { createInterface } from "node:readline";

const [pack, mode, url, key] = process.argv.slice(2);
const old = pack === "@modelcontextprotocol/sdk";
const { Client } = await import(old ? `${pack}/client/index.js` : pack);
const { StreamableHTTPClientTransport } = await import(
  old ? `${pack}/client/streamableHttp.js` : pack
);
const client = new Client(
  { name: "test", version: "1" },
  old ? {} : { versionNegotiation: { mode } },
);
const headers = { Authorization: `Bearer ${key}` };
await client.connect(
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
);
const { tools } = await client.listTools();
console.log(JSON.stringify({ tools: tools.map((each) => each.name), instructions: client.getInstructions() }));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await client.callTool(JSON.parse(line))));
}
await client.close();
