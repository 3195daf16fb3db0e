"""What agents do: events folded from the log, approvals, usage."""
