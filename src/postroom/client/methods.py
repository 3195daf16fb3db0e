"""The methods of a client that are made from the table; `methods.pyi` has their signatures.

`python -m tools.operations` writes those. What needs more than one call, or a stream, is in `client.http`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from postroom.client.calls import form, new_key
from postroom.client.rules import PERHAPS_DONE
from postroom.client.transport import AsyncTransport
from postroom.client.wire import blocking
from postroom.client.words import WORDS
from postroom.protocol.operations import OPERATIONS


class AsyncMethods:
    """For tasks."""

    transport: AsyncTransport


class Methods:
    """For threads: each does what that of its `inner` does, and returns when it is done."""


def _method(operation: str, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def method(self: AsyncMethods, *args: Any, **given: Any) -> Any:
        return await _called(self.transport, operation, args, given)

    method.__name__ = name
    method.__doc__ = f"{OPERATIONS[operation]['help']}: {operation} (docs/api.md)."
    return method


async def _called(
    transport: AsyncTransport, operation: str, args: tuple[Any, ...], given: dict[str, Any]
) -> Any:
    asked = form(operation)
    words = asked.words
    values = asked.values(args, given)
    path, sent = asked.filled(values), asked.sent(values)
    extra = words.extra + (sent.get(words.waits) or 0.0)
    if words.keyed:
        sent["key"] = sent.get("key") or new_key()
    if asked.answer == "text/plain":
        async with transport.exchange(asked.method, path, silence=extra) as answer:
            await answer.aread()
            return answer.text
    repeatable = words.keyed or (words.again and not sent.get(words.unless))
    try:
        found = await transport.call(
            asked.method,
            path,
            **asked.placed(sent),
            repeatable=repeatable or asked.method == "GET",
            extra_time=extra,
        )
    except PERHAPS_DONE as error:
        if words.keyed:
            error.remedy = f"the same again with --key {sent['key']}, which never does it twice"
        raise
    return found[words.gives] if words.gives else found


for _operation, _words in WORDS.items():
    if _words.made:
        _made = _method(_operation, _words.name)
        setattr(AsyncMethods, _words.name, _made)
        setattr(Methods, _words.name, blocking(_made))
