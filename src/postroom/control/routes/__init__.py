"""Thin routes of the HTTP API, one file a noun."""
