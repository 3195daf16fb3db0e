"""A2A's push notifications: each change of a task goes to the URLs that its callers named, whatever is killed."""
