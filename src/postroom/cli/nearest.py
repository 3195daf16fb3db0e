"""The agent that was probably meant, for an error about one that nobody knows."""

from __future__ import annotations

import re
from contextlib import suppress

from postroom.cli.options import connect
from postroom.errors import PostroomError, UnknownRecipient
from postroom.protocol.similar import did_you_mean

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
