// Postroom's plugin for OpenCode: written by `postroom connect`, taken out by `postroom disconnect`.
//
// It tells the hook file what happens in a session, and gives the session the mail that the hook file answers: after a
// tool and with a prompt as part of what is there already, and to an idle session as a prompt that its person sees.
// It adds the MCP server while OpenCode runs; no file of OpenCode's names it.

import { spawn } from "node:child_process"
import { existsSync } from "node:fs"

const HOOK = "@HOOK@"
const SERVER = "postroom"
const SECONDS = 3
const LONGEST = 20000

// OpenCode may run inside a session of another client, whose process is not ours.
const { CLAUDE_PID: _, ...env } = process.env

function run(event, said, seconds) {
  return new Promise((done) => {
    const child = spawn("sh", [HOOK, "opencode", event], { env })
    const told = { out: "", err: "" }
    const timer = seconds && setTimeout(() => child.kill(), seconds * 1000)
    child.stdout.setEncoding("utf8").on("data", (text) => (told.out += text))
    child.stderr.setEncoding("utf8").on("data", (text) => (told.err += text))
    child.stdin.on("error", () => {})
    child.on("error", () => done({ code: 0, out: "", err: "" }))
    child.on("close", (code) => {
      clearTimeout(timer)
      done({ code, ...told })
    })
    child.stdin.end(JSON.stringify(said))
    if (!seconds) waiters.add(child.once("close", () => waiters.delete(child)))
  })
}

const waiters = new Set()
process.on("exit", () => waiters.forEach((child) => child.kill()))

export const Postroom = async ({ client, directory }) => {
  if (!existsSync(HOOK) || process.env.POSTROOM_API) return {} // taken out; a worker, whose sidecar brings its mail

  const sessions = new Map() // id -> {own, turn, waits}; own: not a subagent's

  async function known(id) {
    if (!sessions.has(id)) {
      const found = await client.session.get({ path: { id } }).catch(() => undefined)
      const own = Boolean(found?.data) && !found.data.parentID
      if (!sessions.has(id)) sessions.set(id, { own, turn: "", waits: false, started: false })
    }
    const session = sessions.get(id)
    return session.own ? session : undefined
  }

  async function tell(id, event, more = {}) {
    const session = await known(id)
    if (!session) return ""
    const said = { session_id: id, cwd: directory, turn: session.turn, ...more }
    if (!session.started) {
      session.started = true
      await run("start", { ...said, source: "startup" }, SECONDS)
    }
    const { out } = await run(event, said, SECONDS)
    if (event !== "end") wait(id, session)
    return out
  }

  async function wait(id, session) {
    if (session.waits) return
    session.waits = true
    const { code, err } = await run("wait", { session_id: id, cwd: directory })
    if (code === 2 && err) {
      const body = { parts: [{ type: "text", text: err }] }
      await client.session.promptAsync({ path: { id }, body }).catch(() => {})
    }
    session.waits = false
    if (code === 2 && sessions.has(id)) wait(id, session)
  }

  return {
    config: async (config) => {
      config.mcp ??= {}
      config.mcp[SERVER] ??= { type: "local", command: ["sh", HOOK, "opencode", "mcp"], enabled: true, timeout: 90000 }
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const session = await known(sessionID)
      if (!session) return
      session.turn = message.id
      const texts = parts.filter((part) => part.type === "text").map((part) => part.text)
      const text = await tell(sessionID, "prompt", { prompt: texts.join("\n").slice(0, LONGEST) })
      if (text) parts.push({ type: "text", text, id: `${parts.at(-1).id}p`, sessionID, messageID: message.id })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      if (tool.startsWith(`${SERVER}_`)) {
        if (!(await known(sessionID))) throw new Error("Postroom's tools are for the session itself, not for its subagents")
        args.postroom_session = sessionID // goes no further than the process of this machine
      }
      await tell(sessionID, "before_tool", { tool_name: tool, tool_use_id: callID })
    },
    "tool.execute.after": async ({ tool, sessionID, callID }, output) => {
      const text = await tell(sessionID, "after_tool", { tool_name: tool, tool_use_id: callID })
      if (!text) return
      if (typeof output.output === "string") output.output += `\n\n${text}`
      else if (Array.isArray(output.content)) output.content.push({ type: "text", text })
    },
    event: async ({ event: { type, properties } }) => {
      if (type === "session.idle") await tell(properties.sessionID, "stop")
      if (type === "session.compacted") await tell(properties.sessionID, "start", { source: "compact" })
      if (type === "session.deleted" && sessions.get(properties.info?.id)?.started) {
        await tell(properties.info.id, "end", { reason: "deleted" })
        sessions.delete(properties.info.id)
      }
    },
  }
}
