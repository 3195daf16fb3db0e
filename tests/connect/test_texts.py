"""Files of coding agents, changed as text: for any content the bytes of others stay."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.connect import json_text, toml_text
from postroom.errors import InvalidInput

GROUPS = {
    event: {"hooks": [{"type": "command", "command": f"ours {event}", "timeout": 60}]}
    for event in ("SessionStart", "PreToolUse", "Stop")
}
TABLE = ("mcp_servers", "postroom")
VALUES = {"command": "/opt/post room/bin/postroom", "args": ["mcp", "codex"]}


def is_ours(handler: json_text.Handler) -> bool:
    return str(handler.get("command", "")).startswith("ours ")


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────

spaces = st.sampled_from(["", " ", "\n", "\r\n  ", "\t", "  \n    "])
words = st.sampled_from(["a", "not ours", '"hooks": [', "}", "ä✉", 'x\\"', "", "], {"])
leaves = st.none() | st.booleans() | st.integers() | words
values = st.recursive(
    leaves, lambda each: st.lists(each, max_size=3) | st.dictionaries(words, each, max_size=3)
)
handlers = st.fixed_dictionaries(
    {"type": st.just("command"), "command": words}, optional={"timeout": st.integers(0, 9)}
)
groups = st.fixed_dictionaries(
    {"hooks": st.lists(handlers, max_size=2)}, optional={"matcher": words}
)
events = st.dictionaries(
    st.sampled_from(["SessionStart", "Stop", "Other"]), st.lists(groups, max_size=3), max_size=3
)
documents = st.builds(
    lambda others, hooks: others | ({} if hooks is None else {"hooks": hooks}),
    st.dictionaries(st.sampled_from(["a", "b", "description"]), values, max_size=2),
    st.none() | events,
)


def spaced(value: Any, space: Callable[[], str]) -> str:
    """JSON with any white space that JSON allows."""
    match value:
        case dict():
            inner = [
                f"{json.dumps(key)}{space()}:{space()}{spaced(each, space)}"
                for key, each in value.items()
            ]
            return "{" + space() + f"{space()},{space()}".join(inner) + space() + "}"
        case list():
            inner = [spaced(each, space) for each in value]
            return "[" + space() + f"{space()},{space()}".join(inner) + space() + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


@st.composite
def texts(draw: st.DrawFn) -> str:
    document = draw(documents)
    return spaced(document, lambda: draw(spaces)) + draw(spaces)


@pytest.mark.requirement("connect-bytes-come-back")
@given(texts())
def test_hooks_that_come_and_go_leave_every_byte_of_the_file(text: str) -> None:
    between = json_text.with_hooks(text, GROUPS)
    said, had = json.loads(between), json.loads(text)
    for event, group in GROUPS.items():
        assert said["hooks"][event] == [*had.get("hooks", {}).get(event, []), group]

    assert json_text.without_hooks(between, is_ours, text) == text


def _foreign(said: dict[str, Any], group: dict[str, Any], change: str) -> None:
    """What another program does to the file, as it could whether or not ours are in it."""
    hooks = said.setdefault("hooks", {})
    match change:
        case "first":
            hooks.setdefault("Stop", []).insert(0, group)
        case "last":
            hooks.setdefault("Stop", []).append(group)
        case "event":
            hooks.setdefault("Foreign", []).append(group)
        case "key":
            said["foreign"] = [group]
        case "beside":
            place = next((each for each in hooks.get("Stop", []) if each["hooks"]), None)
            if place is not None:
                place["hooks"].append({"type": "command", "command": "foreign"})


@given(
    texts(),
    groups,
    st.lists(st.sampled_from(["first", "last", "event", "key"]), max_size=3),
    st.sampled_from([None, 2]),
)
def test_only_our_hooks_are_cut_from_a_file_that_others_have_changed(
    text: str, group: dict[str, Any], changes: list[str], indent: int | None
) -> None:
    said = json.loads(json_text.with_hooks(text, GROUPS))
    wanted = json.loads(text)
    for change in changes:
        _foreign(said, group, change)
        _foreign(wanted, group, change)

    left = json_text.without_hooks(json.dumps(said, indent=indent), is_ours, text)

    assert _full(json.loads(left)) == _full(wanted)


def _full(said: dict[str, Any]) -> dict[str, Any]:
    """Without an empty object of hooks, which says as much as none."""
    return {key: value for key, value in said.items() if (key, value) != ("hooks", {})}


def test_a_handler_that_another_program_put_into_our_group_stays() -> None:
    said = json.loads(json_text.with_hooks("{}", GROUPS))
    foreign = {"type": "command", "command": "foreign"}
    said["hooks"]["Stop"][0]["hooks"].append(foreign)

    left = json_text.without_hooks(json.dumps(said), is_ours, None)

    assert json.loads(left) == {"hooks": {"Stop": [{"hooks": [foreign]}]}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"hooks": []}',
        '{"hooks": {"Stop": {}}}',
        '{"hooks": {"Stop": [{}]}}',
        '{"hooks": {"Stop": [{"hooks": ["x"]}]}}',
        '{"hooks": {}, "hooks": {}}',
        '{"a": NaN}',
        '{"a": 1} // a comment',
        "[" * 100_000,
    ],
)
def test_a_file_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        json_text.with_hooks(text, GROUPS)


# ── TOML ────────────────────────────────────────────────────────────────────────────────────────────────

statements = st.sampled_from(
    [
        "# a comment",
        "",
        "   ",
        "[table]",
        "[[rows]]",
        "[mcp_servers.other]",
        "[mcp_servers.postroomy] # near",
        '[hooks.state."/home/a/hooks.json:stop:0:0"]',
        "[mcp_servers]",
        'k1 = "[mcp_servers.postroom]"',
        'k2 = """\n[mcp_servers.postroom]\nx = 1\n"""',
        "k3 = '''\n# >>> \n'''",
        "k4 = [\n  1, # one\n  [2,\n 3],\n]",
        'k5 = { a = "}", b = [1] }',
        "k6.deep = nan",
        '"k 7" = 1979-05-27T07:32:00Z',
        'k8 = "\x0c"'.replace("\x0c", "\\f"),
        "k9 = 'é\u2028✉'",
    ]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A valid file, its lines ended as one of the ways has it, perhaps without an end of the last."""
    kept: list[str] = []
    for line in draw(st.lists(statements, max_size=8)):
        try:
            tomllib.loads("\n".join([*kept, line]))
        except tomllib.TOMLDecodeError:
            continue
        kept.append(line)
    text = "\n".join(kept) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def put(text: str) -> str:
    return toml_text.with_table(text, TABLE, VALUES, "ours")


@pytest.mark.requirement("connect-bytes-come-back")
@given(files())
def test_a_table_that_comes_and_goes_leaves_every_byte_of_the_file(text: str) -> None:
    between = put(text)
    assert toml_text.table(tomllib.loads(between), TABLE) == VALUES
    assert between.startswith(text)

    assert toml_text.without_table(between, TABLE, VALUES, text) == (text, [])


TRUST = '[hooks.state."/x/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:00"\n'


@given(files(), st.sampled_from(["", "\n", "# theirs\n"]))
def test_only_our_table_is_cut_from_a_file_that_got_more(text: str, space: str) -> None:
    try:
        tomllib.loads(f"{text}\n{TRUST}")
    except tomllib.TOMLDecodeError:
        return
    left, below = toml_text.without_table(put(text) + space + TRUST, TABLE, VALUES, text)

    assert below == []
    first = text if not text or text.endswith("\n") else text + ("\r\n" if "\r\n" in text else "\n")
    assert left == first + space + TRUST


def test_what_the_client_put_below_our_table_is_cut_with_it_and_named() -> None:
    approved = '\n[mcp_servers.postroom.tools.a2a_whoami]\napproval_mode = "approve"\n'
    text = 'model = "m"\n'

    left, below = toml_text.without_table(
        put(text).replace("args", "# mine\nargs") + approved + TRUST, TABLE, VALUES, text
    )

    assert left == text + "# mine\n\n" + TRUST
    assert below == [
        "mcp_servers.postroom.tools.a2a_whoami.approval_mode",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x = ",
        "mcp_servers = {}",
        "mcp_servers = 1",
        "[[mcp_servers]]",
        'mcp_servers.postroom.command = "theirs"',
        '[mcp_servers.postroom]\ncommand = "theirs"',
    ],
)
def test_a_file_that_can_take_no_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        put(text)


def test_a_table_that_somebody_made_part_of_another_value_is_not_cut() -> None:
    text = 'mcp_servers = { postroom = { command = "x" }, other = { command = "y" } }\n'
    with pytest.raises(InvalidInput):
        toml_text.without_table(text, TABLE, VALUES, None)
