"""What adapters without verbs share: the words of a request for the program, and the actions that its answer is."""

from __future__ import annotations

from postroom.protocol.verbs import Artifact, Complete, Fail, Reply, Seen
from postroom.sidecar.adapters.adapter import Incoming, IncomingTask, Said, Sender
from postroom_a2a.text import one_line

Request = Incoming | IncomingTask
"""What a run or a turn is for."""


def address(sender: Sender) -> str:
    """`@nick` of a sender, or its uid."""
    return f"@{one_line(sender.nick, 64)}" if sender.nick else sender.uid


def is_post(request: Request) -> bool:
    """Whether it came from a feed, where nobody waits for anything."""
    return isinstance(request, Incoming) and request.to.startswith("#")


def wants_answer(message: Incoming) -> bool:
    """Whether what the program says goes back: two programs that answer each other's answers would never end."""
    return not is_post(message) and (message.expects_reply or not message.reply_to)


def answered(request: Request, said: str) -> list[Said]:
    """The actions of a request that was worked on to its end, with what was said; for a post, none."""
    if isinstance(request, IncomingTask):
        return [*([Artifact(request.id, said)] if said else ()), Complete(request.id)]
    if is_post(request):
        return []
    return [Reply(request.id, said) if said and wants_answer(request) else Seen(request.id)]


def failed(request: Request, why: str) -> list[Said]:
    """The actions of a request that could not be worked on: a message is handed over again."""
    return [Fail(request.id, why)] if isinstance(request, IncomingTask) else []
