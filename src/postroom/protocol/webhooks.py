"""What a webhook is told of (docs/post-office.md, Be told)."""

from __future__ import annotations

from enum import StrEnum


class HookEvent(StrEnum):
    """An event of webhooks.

    `message.received`: a message to the agent is stored.
    `receipt`: a message of the agent has another state.
    `task`: a task for the agent or of it is asked for, or has changed.
    `approval`: an agent that it owns, with the scope operate any agent, asks for something, or that is settled.
    """

    MESSAGE = "message.received"
    RECEIPT = "receipt"
    TASK = "task"
    APPROVAL = "approval"


TEST = "test"
"""The event of a delivery that somebody asks for by hand."""
