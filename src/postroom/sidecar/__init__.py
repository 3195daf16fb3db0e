"""The sidecar: the process inside the sandbox that connects an agent program to the bus.

It hands messages to the agent, sends what the agent says, and reports only what it knows
(docs/architecture.md, The two walls). Light on purpose: no database, no web framework.
"""
