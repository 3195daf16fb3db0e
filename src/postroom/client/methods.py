"""The methods of a client that are made from the table; `methods.pyi` has their signatures.

`python -m tools.operations` writes those. What needs more than one call, or no JSON, is in `client.http`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from postroom.client.calls import Form, new_key
from postroom.client.rules import ANSWER_TIMEOUT, PERHAPS_DONE
from postroom.client.transport import AsyncTransport
from postroom.client.wire import Face, blocking
from postroom.client.words import Words, every
from postroom.protocol.operations import OPERATIONS

if TYPE_CHECKING:
    from postroom.client.stream import AsyncEventStream, EventStream


class AsyncMethods:
    """For tasks."""

    transport: AsyncTransport


class Methods:
    """For threads: each does what that of its `inner` does, and returns when it is done."""


async def _called(transport: AsyncTransport, form: Form, values: dict[str, Any]) -> Any:
    words = form.words
    path, sent = form.filled(values), form.sent(values)
    extra = words.extra + (sent.get(words.waits) or 0.0)
    if words.keyed:
        sent["key"] = sent.get("key") or new_key()
    if form.answer == "text/plain":
        async with transport.exchange("GET", path, silence=ANSWER_TIMEOUT + extra) as answer:
            await answer.aread()
            return answer.text
    repeatable = words.keyed or (words.again and not sent.get(words.unless))
    try:
        found = await transport.call(
            form.method,
            path,
            **form.placed(sent),
            repeatable=repeatable or form.method == "GET",
            extra_time=extra,
        )
    except PERHAPS_DONE as error:
        if words.keyed:
            error.remedy = f"the same again with --key {sent['key']}, which never does it twice"
        raise
    return found[words.gives] if words.gives else found


def _followed(transport: AsyncTransport, form: Form, values: dict[str, Any]) -> AsyncEventStream:
    from postroom.client.stream import FOR_EVER, RECONNECT, AsyncEventStream

    ends = form.words.ends
    usual = (lambda event: event.data.get(ends) is True) if ends else None
    return AsyncEventStream(
        transport,
        {name: value for name, value in form.sent(values).items() if name != "after"},
        after=str(values.get("after") or form.start),
        path=form.filled(values),
        retry=FOR_EVER if values.get("for_ever") else RECONNECT,
        is_last=values.get("is_last") or usual,
        away=values.get("away") or (lambda _: None),
    )


def _stream(body: Callable[..., AsyncEventStream]) -> Face[..., EventStream]:
    def made(*args: Any, **given: Any) -> EventStream:
        from postroom.client.stream import EventStream

        return EventStream.over(body(*args, **given))

    return Face(made)


def _method(operation: str, words: Words) -> Callable[..., Any]:
    form = cache(lambda: Form(operation, words))  # most are never called
    does = _followed if OPERATIONS[operation].get("events") else _called

    def method(self: AsyncMethods, *args: Any, **given: Any) -> Any:
        return does(self.transport, form(), form().values(args, given))

    method.__name__ = words.name
    method.__doc__ = (
        f"{OPERATIONS[operation]['help']}: {OPERATIONS[operation]['route']} (docs/api.md)."
    )
    return method


for _operation, _words in every():
    if _words.made:
        _made = _method(_operation, _words)
        setattr(AsyncMethods, _words.name, _made)
        _turned = _stream if OPERATIONS[_operation].get("events") else blocking
        setattr(Methods, _words.name, _turned(_made))
