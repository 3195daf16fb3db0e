"""Shell completion for nicks, tasks, approvals and settings. It cannot show an error, so then it offers
nothing; and the agent that was probably meant, for an error about one that nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect
from postroom.errors import PostroomError, UnknownRecipient
from postroom.protocol.similar import did_you_mean

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Approval, Task

MOST = 100


def _client(ctx: click.Context) -> Client:
    with ctx.scope(cleanup=False):  # the state folder is looked up in the current context
        return connect()


def _found(ctx: click.Context, ask: Callable[[Client], Iterable[str]], begun: str) -> list[str]:
    try:
        with _client(ctx) as client:
            return [name for name in ask(client) if name.startswith(begun)]
    except PostroomError:
        return []


def agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Agents as `@nick`; bash splits a word at its `@`, so the `@` is not part of `incomplete`."""
    if ctx.params.get("words") not in (None, (), ("@",)):
        return []  # the text follows the first word

    def nicks(client: Client) -> Iterable[str]:
        return (agent["nick"] for agent in client.agents() if agent["kind"] != "human")

    return [f"@{nick}" for nick in _found(ctx, nicks, incomplete.removeprefix("@"))]


def settings(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The names of settings."""
    from postroom.settings.options import BY_KEY

    return [key for key in BY_KEY if key.startswith(incomplete)]


def tasks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The newest tasks, with the ids that lists show."""
    return _short(_found(ctx, lambda client: _ids(client.tasks(limit=MOST)), incomplete))


def approvals(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The newest pending approvals, with the ids that lists show."""
    return _short(_found(ctx, lambda client: _ids(client.approvals(limit=MOST)), incomplete))


def _ids(found: Iterable[Task] | Iterable[Approval]) -> Iterable[str]:
    return (each["id"] for each in found)


def _short(ids: list[str]) -> list[str]:
    from postroom.view.tasks import short

    return [short(each) for each in ids]


_CALLED = re.compile(r"nobody is called '@?([^']{1,64})'")


def name_nearest(error: PostroomError) -> None:
    """Have an `UnknownRecipient` name the agent whose nick is most similar.

    The list is asked for with the caller's own key: the post room itself names nobody to who may not read the list.
    """
    called = _CALLED.search(error.message)
    if not isinstance(error, UnknownRecipient) or called is None:
        return
    with suppress(PostroomError), connect() as client:
        nicks = [agent["nick"] for agent in client.agents()]
        error.remedy = did_you_mean(called[1], nicks, form=lambda nick: f"@{nick}") or error.remedy
