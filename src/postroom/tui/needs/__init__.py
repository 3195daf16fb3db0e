"""Approvals and questions, answered in dialogs."""
