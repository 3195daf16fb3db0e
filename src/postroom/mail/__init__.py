"""The post office: who has an address, what was sent, and how far it got (docs/architecture.md, Final states).

The log says what happened; `projection` folds it into SQL, `fold` keeps that running, `office` is what people and
the API use. Whatever the post office itself decides (no such recipient, expired, undeliverable, answered) it first
appends to the log as a receipt, and the fold of that receipt sets the state.
"""
