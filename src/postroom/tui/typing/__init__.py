"""The line below: history, completion, commands."""
