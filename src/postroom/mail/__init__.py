"""The post office: messages, their states, dead letters and alerts (docs/architecture.md, Final states).

The log says what happened. `projection` folds it into SQL; people and the API use `office`. What the post office
itself decides (no such recipient, expired, undeliverable, answered) it first appends to the log as a receipt. The
fold of that receipt sets the state.
"""
