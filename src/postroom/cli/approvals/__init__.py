"""Approvals on the command line: how they look, and who may decide here."""
