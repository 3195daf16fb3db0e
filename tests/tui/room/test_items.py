"""What needs a person, and the rows of the sidebar, for any state and any width."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.lines.text import columns
from postroom.tui.sidebar.items import Item, age, items
from postroom.tui.sidebar.pane import first_target
from postroom.view.needs import NeedKind
from postroom.view.room import Room
from postroom_a2a.times import format_time

NOW = 1_767_225_600.0
AT = "2026-01-01T00:00:00.000Z"

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eright\u2066 [bold]a\u200bb\u0301 中文字 \n\t end"

texts = st.one_of(st.text(max_size=40), st.just(HOSTILE))
nicks = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)


def worker(nick: str = "coder", state: str = "idle", **more: Any) -> Any:
    return {
        "uid": f"uid-{nick}",
        "nick": nick,
        "project": "web",
        "state": state,
        "desired": "running",
        "detail": "",
        "last_seen": AT,
        "unread": 0,
        "task": None,
    } | more


def party(nick: str) -> Any:
    return {"uid": f"uid-{nick}", "nick": nick, "kind": "worker"}


def approval(id_: str, at: str = AT, nick: str = "coder", **more: Any) -> Any:
    return {
        "id": id_,
        "seq": 1,
        "worker": party(nick),
        "kind": "tool",
        "tool": "Bash",
        "title": "",
        "input": {"command": "make deploy"},
        "asked_at": at,
        "expires_at": None,
    } | more


def question(id_: str, text: str = "which?", nick: str = "coder") -> Any:
    said = {"detail": text, "status_text": "", "state": "input-required"}
    return {"id": id_, "worker": party(nick), "updated_at": AT, **said}


def alert(id_: int, kind: str, text: str = "odd", nick: str = "") -> Any:
    who = party(nick) if nick else None
    return {"id": id_, "at": AT, "kind": kind, "text": text, "nick": nick, "who": who}


def status(**more: Any) -> Any:
    return {
        "org": "default",
        "me": {"uid": "uid-maria", "nick": "maria"},
        "server": {"url": "http://127.0.0.1:7130", "pid": 1},
        "workers": [],
        "approvals": [],
        "attention": [],
        "alerts": [],
        "deadletters": 0,
        "inbox": 0,
    } | more


def test_what_waits_for_an_answer_stands_first_and_the_rest_by_kind():
    later = "2026-01-01T00:05:00.000Z"
    room = Room(
        status(
            workers=[worker("bob", "failed"), worker("eve", "stalled"), worker()],
            approvals=[approval("bb11", later), approval("aa11")],
            attention=[question("cc11")],
            alerts=[alert(1, "rejected")],
            deadletters=2,
            inbox=1,
        ),
    )
    found = [(need.kind, need.id) for need in room.needs]
    assert found == [
        (NeedKind.APPROVAL, "aa11"),
        (NeedKind.QUESTION, "cc11"),
        (NeedKind.APPROVAL, "bb11"),
        (NeedKind.FAILED, "uid-bob"),
        (NeedKind.STALLED, "uid-eve"),
        (NeedKind.ALERT, "1"),
        (NeedKind.MAIL, ""),
        (NeedKind.DEAD, ""),
    ]


def test_an_alert_that_says_what_the_list_says_already_is_no_second_need():
    room = Room(
        status(
            workers=[worker("bob", "failed")],
            alerts=[
                alert(1, "approval"),
                alert(2, "input-required"),
                alert(3, "worker-ended", nick="bob"),
            ],
        )
    )
    assert [need.kind for need in room.needs] == [NeedKind.FAILED]


def test_a_record_is_found_by_the_beginning_of_its_id_if_that_is_of_one_alone():
    room = Room(
        status(approvals=[approval("ab12cd"), approval("ab99")], attention=[question("77")])
    )
    assert room.approval("ab12") == room.approvals[0]
    assert room.approval("ab") is None
    assert room.approval("ab99") == room.approvals[1]
    assert room.question("77") == room.questions[0]
    assert room.question("") is None


def test_the_screen_begins_with_the_project_of_what_needs_the_person_first():
    calm = Room(status(workers=[worker("bob", project="api")]), ("api", "web"))
    asked = Room(
        status(workers=[worker("bob", project="api"), worker()], approvals=[approval("aa11")]),
        ("api", "web"),
    )
    assert str(first_target(calm)) == "#api"
    assert str(first_target(asked)) == "#web"
    assert first_target(Room(status())) is None


def test_a_worker_shows_how_many_messages_its_agent_has_not_read_beside_what_is_new_to_the_person():
    room = Room(status(workers=[worker(unread=3), worker("bob")]), ("web",))
    found = items(room, 30, NOW, {"uid-coder": 2})
    rows = {item.name: "".join(span.text for span in item.spans) for item in found}
    assert rows["coder"].endswith("(2) m3")
    assert rows["bob"].strip() == "@bob idle"


def test_unread_messages_beyond_those_that_were_fetched_are_counted():
    mail: Any = {"from": party("coder"), "sent_at": AT, "text": "look", "subject": "", "parts": []}
    room = Room(status(inbox=503), unread=(mail,))
    assert [need.text for need in room.needs] == ["look", "502 more unread to you"]


def test_an_empty_room_says_how_to_begin_in_the_narrowest_pane():
    found = items(Room(status(), ("main",)), 24, NOW, {})
    text = "\n".join("".join(span.text for span in item.spans) for item in found)
    assert "/spawn FILE.toml" in text
    assert "…" not in text


def names(found: list[Item]) -> list[str]:
    return [item.name for item in found if item.name]


def text_of(found: list[Item]) -> str:
    return "\n".join("".join(span.text for span in item.spans) for item in found)


@pytest.mark.requirement("screen-state-fresh")
def test_names_with_numbers_stand_as_people_count():
    agents: Any = [
        {"uid": f"p-{nick}", "nick": nick, "kind": "human", "online": True}
        for nick in ("p10", "p9")
    ]
    workers = [worker(f"c{number}") for number in (1, 10, 14, 2)]
    room = Room(status(workers=workers), ("web",), agents=tuple(agents))
    assert names(items(room, 40, NOW, {})) == ["web", "c1", "c2", "c10", "c14", "p9", "p10"]


def test_a_session_stands_there_with_its_client_its_folder_and_when_it_was_heard():
    at = format_time(NOW - 120)
    state = {"client": "claude", "folder": "/srv/app", "state_at": at, "heard_at": at}
    agents: Any = [
        {"uid": f"s-{nick}", "nick": nick, "kind": "external", "online": online}
        | {"session": state | {"state": word}}
        for nick, online, word in (
            ("app", True, "busy"),
            ("old", False, "gone"),
            ("web", False, "idle"),
        )
    ]
    room = Room(status(), (), agents=tuple(agents))
    found = text_of(items(room, 70, NOW, {}))
    assert "@app busy  claude, /srv/app, heard 2 min ago" in found
    assert "@web away" in found
    assert "@old" not in found
    assert "@old gone" in text_of(items(room, 70, NOW, {"s-old": 1}))
    assert "@old gone" in text_of(items(room, 70, NOW, {}, wanted="old"))


@pytest.mark.requirement("screen-state-fresh")
@pytest.mark.parametrize(
    "wanted, left",
    [
        ("", ["api", "bob", "web", "eve", "coder", "olga"]),
        ("@", ["api", "bob", "web", "eve", "coder", "olga"]),
        ("WEB", ["web", "eve", "coder"]),
        ("api bo", ["api", "bob"]),
        ("fail", ["web", "eve"]),
        ("g", ["olga"]),
        ("#", ["api", "bob", "web", "eve", "coder"]),
        ("nobody", []),
    ],
)
def test_a_filter_leaves_what_has_all_its_words_in_name_project_state_or_last_word(
    wanted: str, left: list[str]
):
    olga: Any = {"uid": "p-olga", "nick": "olga", "kind": "human", "online": False}
    workers = [worker("bob", project="api"), worker(), worker("eve", "failed")]
    room = Room(status(workers=workers), ("api", "web"), agents=(olga,))
    found = items(room, 40, NOW, {}, wanted=wanted, folded={"web"} if wanted else ())
    assert names(found) == left
    assert bool(left) != ("nothing has that" in text_of(found))
    shown = [item.need.nick for item in found if item.need is not None]
    assert shown == (["eve"] if wanted in ("", "@", "fail") else [])


@pytest.mark.requirement("screen-state-fresh")
def test_a_folded_project_says_how_many_workers_it_has_and_what_is_new_of_all():
    room = Room(
        status(workers=[worker(), worker("bob"), worker("eve", project="api")]), ("api", "web")
    )
    new = {"#web": 1, "uid-bob": 2}
    found = items(room, 40, NOW, new, "uid-bob", folded={"web"})
    assert names(found) == ["api", "eve", "web"]
    assert ">#web ▸ 2 workers" in text_of(found)
    assert "(3)" in text_of(found)
    assert "#api ▾" in text_of(found)
    assert "▾" not in text_of(items(room, 40, NOW, new, folded=None))


def test_ages_take_three_columns():
    assert [age(NOW - s, NOW) for s in (0, 59, 60, 3599, 3600, 86400, 86400 * 365)] == [
        "<1m",
        "<1m",
        "1m",
        "59m",
        "1h",
        "1d",
        "99d",
    ]
    assert age(0, NOW) == ""
    assert age(NOW + 100, NOW) == "<1m"


@st.composite
def rooms(draw: st.DrawFn) -> Room:
    named = draw(st.lists(nicks, max_size=6, unique=True))
    states = st.sampled_from(("idle", "working", "failed", "stalled", "stopped", "starting", "odd"))
    tasks = st.one_of(
        st.none(),
        st.builds(
            lambda text, state: {
                "id": "aa" * 16,
                "state": state,
                "text": text,
                "attempt": 1,
                "status_text": text,
                "started_at": AT,
            },
            texts,
            st.sampled_from(("working", "input-required")),
        ),
    )
    workers = [
        worker(nick, draw(states), detail=draw(texts), task=draw(tasks), project=draw(nicks))
        for nick in named
    ]
    people = [
        {"uid": f"p-{nick}", "nick": nick, "kind": kind, "online": True}
        for nick, kind in draw(
            st.lists(
                st.tuples(nicks, st.sampled_from(("human", "external"))),
                max_size=3,
                unique_by=lambda one: one[0],
            )
        )
    ]
    asked = draw(st.lists(texts, max_size=3))
    return Room(
        status(
            workers=workers,
            approvals=[approval(f"a{n}", input={"command": text}) for n, text in enumerate(asked)],
            attention=[question(f"b{n}", text) for n, text in enumerate(asked)],
            alerts=[alert(n, "odd", text) for n, text in enumerate(asked)],
        ),
        tuple(sorted(set(draw(st.lists(nicks, max_size=3))))),
        agents=tuple(people),  # ty: ignore[invalid-argument-type]
    )


@settings(max_examples=60, deadline=None)
@given(rooms(), st.integers(8, 130))
def test_every_row_fits_its_width_and_names_one_thing_and_is_harmless(room: Room, width: int):
    found = items(room, width, NOW, {"#web": 3}, "#web")
    for item in found:
        text = "".join(span.text for span in item.spans)
        assert columns(text) <= width
        assert text.isprintable()
        assert not set(text) & set("\x1b\u202e\u2066\u200b")
    keys = [item.key for item in found if item.chosen]
    assert len(keys) == len(set(keys))
    assert sum(item.need is not None for item in found) == len(room.needs)
    shown = {item.uid for item in found if item.uid}
    assert {one["uid"] for one in room.workers} <= shown
