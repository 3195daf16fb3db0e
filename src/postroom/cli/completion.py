"""Shell completion for nicks, tasks, approvals and settings. It cannot show an error, so then it offers
nothing; and the agent that was probably meant, for an error about one that nobody knows.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect
from postroom.errors import PostroomError, UnknownRecipient
from postroom.protocol.similar import did_you_mean

if TYPE_CHECKING:
    from postroom.client.http import Client

MOST = 100


def _client(ctx: click.Context) -> Client:
    with ctx.scope(cleanup=False):  # the state folder is looked up in the current context
        return connect()


def agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Agents as `@nick`; bash splits a word at its `@`, so the `@` is not part of `incomplete`."""
    if ctx.params.get("words") not in (None, (), ("@",)):
        return []  # the text follows the first word
    try:
        with _client(ctx) as client:
            nicks = [agent["nick"] for agent in client.agents() if agent["kind"] != "human"]
    except PostroomError:
        return []
    begun = incomplete.removeprefix("@")
    return [f"@{nick}" for nick in nicks if nick.startswith(begun)]


def settings(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The names of settings."""
    from postroom.settings.options import BY_KEY

    return [key for key in BY_KEY if key.startswith(incomplete)]


def tasks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The newest tasks, with the ids that lists show."""
    from postroom.view.tasks import short

    try:
        with _client(ctx) as client:
            ids = [task["id"] for task in client.tasks(limit=MOST)]
    except PostroomError:
        return []
    return [short(task) for task in ids if task.startswith(incomplete)]


def approvals(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The newest pending approvals, with the ids that lists show."""
    from postroom.view.tasks import short

    try:
        with _client(ctx) as client:
            ids = [approval["id"] for approval in client.approvals(limit=MOST)]
    except PostroomError:
        return []
    return [short(each) for each in ids if each.startswith(incomplete)]


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
