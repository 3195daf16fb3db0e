"""Hooks in a JSON file of a coding agent, changed as text at one place: what others wrote keeps its bytes.

The form is the one that Claude Code and Codex share: `{"hooks": {EVENT: [{"matcher": ..., "hooks": [HANDLER, ...]}]}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.errors import InvalidInput

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"

Handler = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Item:
    """A value in its list or object: `begin` to `end` are its text, with its key; `value_at` is where the value is."""

    key: str
    begin: int
    value_at: int
    end: int
    value: Any


def parsed(text: str) -> dict[str, Any]:
    """The content of such a file.

    Raises:
        InvalidInput: it is not JSON, says one key twice, or has hooks in another form.
    """
    try:
        said = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not JSON: {error}") from error
    hooks = said.get("hooks", {}) if isinstance(said, dict) else None
    well = isinstance(hooks, dict) and all(_is_event(event) for event in hooks.values())
    if not well:
        raise InvalidInput("its hooks are not in the form that is known here")
    return said


def with_hooks(text: str, groups: Mapping[str, Mapping[str, Any]]) -> str:
    """`text` with one group more for each event, behind those of others.

    Behind, since Codex knows a hook that a person has approved by its place.

    Raises:
        InvalidInput: as `parsed`.
    """
    said = parsed(text)
    for event, group in groups.items():
        hooks = said.get("hooks")
        if hooks is None:
            text = _added(text, (), "hooks", {event: [group]})
        elif event not in hooks:
            text = _added(text, ("hooks",), event, [group])
        else:
            text = _added(text, ("hooks", event), "", group)
        said = parsed(text)
    return text


def without_hooks(text: str, ours: Callable[[Handler], bool], before: str | None) -> str:
    """`text` without the handlers that are ours, and without what is empty then and was not there before.

    Args:
        before: the text before ours came in, None for no file.

    Raises:
        InvalidInput: as `parsed`.
    """
    while found := _first_of(parsed(text), ours):
        text = _cut(text, found)
    had = parsed(before).get("hooks") if before is not None else None
    for event, groups in parsed(text).get("hooks", {}).items():
        if not groups and event not in (had or {}):
            text = _cut(text, ("hooks", event))
    if parsed(text).get("hooks") == {} and had is None:
        text = _cut(text, ("hooks",))
    return text


def whole(value: Mapping[str, Any]) -> bytes:
    """A file of our own, with a line for each hook or server."""
    lines = []
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            rows = [f"    {_line(name)}: {_line(each)}" for name, each in inner.items()]
            lines.append(f"  {_line(key)}: {{\n" + ",\n".join(rows) + "\n  }")
        else:
            lines.append(f"  {_line(key)}: {_line(inner)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def handlers(said: Mapping[str, Any]) -> list[tuple[str, Handler]]:
    """Every handler with its event."""
    return [
        (event, handler)
        for event, groups in said.get("hooks", {}).items()
        for group in groups
        for handler in group["hooks"]
    ]


def _first_of(said: dict[str, Any], ours: Callable[[Handler], bool]) -> tuple[str | int, ...]:
    """The path of the first handler of ours, or of its group where that has no other; () for none."""
    for event, groups in said.get("hooks", {}).items():
        for number, group in enumerate(groups):
            mine = [place for place, each in enumerate(group["hooks"]) if ours(each)]
            if mine and len(mine) == len(group["hooks"]):
                return ("hooks", event, number)
            if mine:
                return ("hooks", event, number, "hooks", mine[0])
    return ()


def _is_event(groups: Any) -> bool:
    return isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(group.get("hooks"), list)
        and all(isinstance(handler, dict) for handler in group["hooks"])
        for group in groups
    )


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it says a key twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _added(text: str, path: Sequence[str | int], key: str, value: Any) -> str:
    """`text` with a value more at the end of the list or object at `path`, spaced as the one before it."""
    at = _place(text, path)
    items = _items(text, at)
    written = (f"{_line(key)}: " if key else "") + _line(value)
    if not items:
        return text[: at + 1] + written + text[at + 1 :]
    begin = text.rindex(",", items[-2].end, items[-1].begin) if len(items) > 1 else at
    space = text[begin + 1 : items[-1].begin] or " "
    end = items[-1].end
    return f"{text[:end]},{space}{written}{text[end:]}"


def _cut(text: str, path: Sequence[str | int]) -> str:
    """`text` without the value at `path`, its key, and one comma."""
    at = _place(text, path[:-1])
    items = _items(text, at)
    number = _number(items, path[-1])
    item = items[number]
    if number:
        return text[: items[number - 1].end] + text[item.end :]
    if len(items) > 1:
        return text[: item.begin] + text[items[1].begin :]
    if item.begin == at + 1:  # as `_added` puts it into an empty one
        return text[: item.begin] + text[item.end :]
    close = _skip(text, item.end)
    return text[: at + 1] + text[close:]


def _place(text: str, path: Sequence[str | int]) -> int:
    """Where the value at `path` begins."""
    at = _skip(text, 0)
    for key in path:
        items = _items(text, at)
        at = items[_number(items, key)].value_at
    return at


def _number(items: Sequence[_Item], key: str | int) -> int:
    return key if isinstance(key, int) else [item.key for item in items].index(key)


def _items(text: str, at: int) -> list[_Item]:
    """The values of the list or object that begins at `at`, in a text that is known to be JSON."""
    keyed = text[at] == "{"
    items: list[_Item] = []
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        begin, key = at, ""
        if keyed:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value, end = _DECODER.raw_decode(text, at)
        items.append(_Item(key, begin, at, end, value))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return items


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
