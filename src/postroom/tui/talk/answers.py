"""What came of the tasks of a conversation, below their requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from postroom.errors import NotFound, PostroomError

if TYPE_CHECKING:
    from postroom.tui.port import ScreenPort
    from postroom.tui.rowlog.log import RowLog
    from postroom.tui.talk.feed import Feed


async def show_answers(app: ScreenPort, feed: Feed, log: RowLog) -> None:
    """Fetch and show the results of the tasks that have ended, the newest first."""
    while task := feed.unanswered:
        try:
            found = await app.calls.run(partial(app.client.task, task))
        except NotFound:
            found = None  # it is pruned: its request is all that is left
        except PostroomError:
            return  # it is asked for again when something else comes
        log.put(feed.answer(task, found))
