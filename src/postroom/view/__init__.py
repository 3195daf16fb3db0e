"""What people look at, as plain records and rows: rooms, needs, workers, tasks, approvals, events. Pure."""
