"""Folding the log into SQL: what mail and tasks have in common.

`rules` says what a rule is, `fold` keeps the projection up with the log, `changes` tells who waits, `retention`
shortens the log, `rebuild` folds it again. Which streams are folded how, mail and tasks say.
"""
