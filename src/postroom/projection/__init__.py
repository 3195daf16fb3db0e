"""Folding the log into SQL, for messages and tasks alike.

`rules` defines a rule, `fold` keeps the projection up to date, `changes` wakes waiters, `retention` shortens the log,
`rebuild` folds it again. Messages and tasks bring the rules of their own streams.
"""
