"""Answers of a person to what an agent asks, given where it is shown, and the PIN that they may demand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import InvalidInput, PinRequired, PinWrong, PostroomError
from postroom.lines.approvals import refused
from postroom.lines.events import request_rows
from postroom.lines.inputs import visible
from postroom.protocol.approvals import Decision
from postroom.protocol.patterns import added, of_session, suggest
from postroom.view.tasks import short
from postroom.view.words import address
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient, Client
    from postroom.lines.rows import Row
    from postroom.protocol.shapes import Approval

T = TypeVar("T")

TRIES = 3
"""Times that one decision asks for the PIN."""

Ask = Callable[[str], str]
"""Has the person type a line behind a mark, unseen; "" if they do not."""

Report = Callable[[PostroomError], None]
"""Shows the person an error after which it goes on."""


def _quiet(error: PostroomError) -> None:
    """Nobody is asked, so there is nothing to show."""


class Tries:
    """How often a person is asked for the PIN of one decision."""

    def __init__(self) -> None:
        self._left = TRIES

    def again(self, error: PinRequired | PinWrong) -> str:
        """What to say before the person is asked once more, "" for nothing; raises `error` where it was enough."""
        if not self._left:
            raise error
        self._left -= 1
        return error.message if isinstance(error, PinWrong) else ""


class Pin:
    """The PIN of a person: known, or asked for when it is needed, once for all calls.

    Args:
        known: "" for none yet.
        ask: None where nobody can be asked.
        remedy: of the error when nothing was typed.
        report: shows that a PIN was wrong, and how many tries are left.
    """

    def __init__(
        self, known: str = "", ask: Ask | None = None, *, remedy: str, report: Report
    ) -> None:
        self._known = known
        self._ask = ask
        self._remedy = remedy
        self._report = report

    def used(self, call: Callable[[str], Any]) -> Any:
        """What `call` returns with the PIN; asks for it where the control plane does.

        Raises:
            PinRequired: nobody can be asked.
            PinWrong, PinPaused: it is not this one.
        """
        tries = Tries()
        while True:
            try:
                return call(self._known)
            except (PinRequired, PinWrong) as error:
                if self._ask is None:
                    raise
                if tries.again(error):
                    self._report(error)
                self._known = self._ask("PIN")
                if not self._known:
                    raise PinRequired(error.message, remedy=self._remedy) from error


def pattern_of(asked: Approval, given: str = "") -> str:
    """The pattern for which nobody is to be asked again: the one that is given, else one for what is asked.

    Raises:
        InvalidInput: it is none that people may add, or there is none for what is asked.
    """
    if made := added(given) if given and not of_session(asked) else suggest(asked):
        return made
    raise InvalidInput(
        f"{short(asked['id'])} is {refused(asked)}; nothing was decided",
        remedy="allow it this once, or name a PATTERN",
    )


async def decided(
    client: AsyncClient,
    worker: str,
    request: str,
    decision: str,
    reason: str = "",
    given: Mapping[str, Any] | None = None,
    *,
    channel: str,
    pin: str = "",
) -> str:
    """Answer an approval; returns what is to be said of it.

    Raises:
        Conflict: it is settled; the message says by whom.
        PinRequired: a PIN is demanded.
        PinWrong, PinPaused: it is not this one.
    """
    found = await client.control(
        worker, request, decision, channel=channel, reason=reason, input=given, pin=pin
    )
    return f"{one_line(found['state'])} {short(request)}"


async def freed(
    client: AsyncClient, worker: str, task: str | None, *, channel: str, pin: str = ""
) -> str:
    """Allow all that is asked in a task until it ends; returns what is to be said of it.

    Raises:
        InvalidInput: it was asked for no task.
        Conflict: the task has ended.
        PinRequired, PinWrong, PinPaused: as `decided`.
    """
    if not task:
        raise InvalidInput("it was not asked in a task", remedy=f"postroom autonomy {worker}")
    found = await client.set_autonomy(worker, "all", task=task, channel=channel, pin=pin)
    more = len(found.get("answered", ())) - 1
    also = f", and {more} more that waited" if more > 0 else ""
    return f"allowed until task {short(task)} ends{also}"


class Answering:
    """Shows approvals and answers them over one channel. Each answer raises what `decided` raises.

    Args:
        report: shows that a PIN was wrong.

    Attributes:
        ask: has the person type their PIN, when it is demanded: each time, since a session may last for days; None
            where nobody is there.
    """

    def __init__(
        self, client: Client, *, channel: str, report: Report = _quiet, ask: Ask | None = None
    ) -> None:
        self._client = client
        self._channel = channel
        self._report = report
        self.ask = ask

    def rows(self, asked: Approval) -> Sequence[Row]:
        """What is asked, whole."""
        return request_rows(address(asked["worker"]), asked)

    def decide(
        self,
        asked: Approval,
        decision: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> str:
        """Answer; returns what is to be said of it."""
        return self.settle(asked["worker"]["uid"], asked["id"], decision, reason, given)

    def free(self, worker: str, task: str | None) -> str:
        """As `freed`."""
        used = self._by_pin(f"postroom autonomy {worker} all --until-task-ends")
        return used(
            lambda pin: freed(self._client.inner, worker, task, channel=self._channel, pin=pin)
        )

    def always(self, asked: Approval) -> str:
        """Allow it, and ask no more for such a thing (`pattern_of`); returns what is to be said of it.

        Raises:
            InvalidInput: there is no such pattern; nothing was decided.
        """
        pattern, worker = pattern_of(asked), asked["worker"]
        name, uid, channel = address(worker), worker["uid"], self._channel
        used = self._by_pin(f"postroom approve {short(asked['id'])} --always")
        allowed = Decision.ALLOWED.value
        used(
            lambda pin: decided(
                self._client.inner, uid, asked["id"], allowed, channel=channel, pin=pin
            )
        )
        used(lambda pin: self._client.inner.allow_always(uid, pattern, pin, channel=channel))
        return (
            f"{name} does not ask for {visible(pattern)} any more; postroom policy {name} shows it"
        )

    def settle(
        self,
        worker: str,
        request: str,
        decision: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> str:
        """As `decide`, for what is known by its id."""
        used = self._by_pin(f"postroom approve {short(request)}")
        return used(
            lambda pin: decided(
                self._client.inner,
                worker,
                request,
                decision,
                reason,
                given,
                channel=self._channel,
                pin=pin,
            )
        )

    def _by_pin(self, remedy: str) -> Callable[[Callable[[str], Coroutine[Any, Any, T]]], T]:
        """Makes calls with the PIN, which is typed once where somebody is there, and then if it is demanded."""
        from postroom.client.wire import done  # --help loads this module, and no HTTP library

        if self.ask is None:
            return lambda call: done(call(""))
        pin = Pin(ask=self.ask, remedy=remedy, report=self._report)
        return lambda call: pin.used(lambda known: done(call(known)))

    def say(self, asked: Approval, text: str) -> str:
        """Answer a question of an agent with words."""
        task = asked["task"]
        if task:
            self._client.answer_task(task, text)
            return f"answered {short(task)}"
        return self.decide(asked, Decision.EDITED.value, given={"text": text})
