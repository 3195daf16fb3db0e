"""Agents of other people: A2A servers that Postroom calls, each with an address and an inbox here."""
