"""Files of the state folder that the agent can reach, too: its home, the spool of events."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import StateUnwritable
from postroom.sidecar.spool import Spool
from postroom.sidecar.turns.home import StateFile, make_home, write_files

RUN = "a" * 32


@pytest.mark.requirement("wall-sidecar-closed")
def test_the_agents_configuration_is_written_through_no_link_that_the_agent_made(tmp_path: Path):
    home, outside = make_home(tmp_path), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (home / ".claude").symlink_to(outside)
    (home / "CLAUDE.md").symlink_to(outside / "kept")

    with pytest.raises(StateUnwritable):
        write_files(home, {".claude/settings.json": "{}"})
    write_files(home, {"CLAUDE.md": "new", "a/b/c": "deep"})
    for bad in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(StateUnwritable):
            write_files(home, {bad: "x"})

    assert sorted(each.name for each in outside.iterdir()) == ["kept"]
    assert (outside / "kept").read_text() == "kept"
    assert (home / "CLAUDE.md").read_text() == "new"
    assert not (home / "CLAUDE.md").is_symlink()
    assert (home / "a/b/c").read_text() == "deep"


def test_a_state_file_that_is_a_link_or_no_json_counts_as_absent(tmp_path: Path):
    (tmp_path / "real").write_text('{"a": 1}')
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "torn").write_text('{"a": ')
    assert StateFile(tmp_path / "real").read() == {"a": 1}
    assert StateFile(tmp_path / "link").read() == {}
    assert StateFile(tmp_path / "torn").read() == {}
    StateFile(tmp_path / "link").write({"b": 2})
    assert (tmp_path / "real").read_text() == '{"a": 1}'


def test_a_pipe_in_the_place_of_a_state_file_makes_nobody_wait(tmp_path: Path):
    for name in ("state", "state.new"):
        os.mkfifo(tmp_path / name)
    file = StateFile(tmp_path / "state")
    assert file.read() == {}
    file.write({"a": 1})
    assert file.read() == {"a": 1}


def text(number: int) -> dict[str, object]:
    return {"type": "text", "text": f"{number} " + "x" * 100}


def numbers(spool: Spool) -> list[int]:
    """The numbers in the texts of all events that wait, each batch taken."""
    found = []
    while (batch := spool.batch()) is not None:
        found += [int(json.loads(line)["text"].split(" ", 1)[0]) for line in batch.lines]
        spool.taken(batch, batch.first + len(batch.lines))
    return found


@pytest.mark.requirement("events-folded-once")
def test_events_of_several_runs_come_in_their_order_with_their_numbers(tmp_path: Path):
    first = Spool(tmp_path / "events", RUN)
    for number in range(5000):
        first.append(text(number))
    taken = first.batch()
    assert taken is not None
    first.taken(taken, 100)  # and then it is killed
    second = Spool(tmp_path / "events", "b" * 32)
    second.append(text(5000))
    batch = second.batch()
    assert batch is not None
    assert (batch.run, batch.first) == (RUN, 1)  # what was taken may be posted again
    assert numbers(second) == list(range(5001))
    second.close()
    assert list((tmp_path / "events").iterdir()) == []


@pytest.mark.requirement("events-folded-once")
def test_what_the_control_plane_has_is_skipped_over_batches_and_segments(tmp_path: Path):
    first = Spool(tmp_path / "events", RUN)
    for number in range(5000):
        first.append(text(number))
    second = Spool(tmp_path / "events", "b" * 32)
    second.append(text(5000))
    batch = second.batch()
    assert batch is not None
    assert len(list((tmp_path / "events").iterdir())) > 3
    second.taken(batch, 4321)
    after = second.batch()
    assert after is not None
    assert (after.run, after.first) == (RUN, 4321)
    second.taken(after, 99_999)  # no further than that run
    assert numbers(second) == [5000]


def test_a_torn_line_at_the_end_of_a_segment_is_no_event(tmp_path: Path):
    spool = Spool(tmp_path / "events", RUN)
    spool.append(text(1))
    (segment,) = (tmp_path / "events").iterdir()
    with segment.open("ab") as file:
        file.write(b'{"type": "te')
    assert numbers(Spool(tmp_path / "events", "b" * 32)) == [1]


def test_a_full_spool_leaves_out_texts_but_nothing_that_people_decide_by(tmp_path: Path):
    spool = Spool(tmp_path / "events", RUN, most=10_000)
    for number in range(1000):
        spool.append(text(number))
        spool.append({"type": "usage", "input_tokens": number})
    spool.append({"type": "tool_result", "call": "c", "output": "x" * 1000, "status": "ok"})
    kinds: list[dict[str, Any]] = []
    while (batch := spool.batch()) is not None:
        kinds += [json.loads(line) for line in batch.lines]
        spool.taken(batch, batch.first + len(batch.lines))
    spool.append(text(1001))
    batch = spool.batch()
    assert batch is not None
    note, after = map(json.loads, batch.lines)

    assert sum(event["type"] == "usage" for event in kinds) == 1000
    texts = sum(event["type"] == "text" for event in kinds)
    assert texts < 100
    noted = sum(e["count"]["text"] for e in kinds if e.get("code") == "left-out")
    assert noted + note["count"].get("text", 0) + texts == 1000
    assert after["text"].startswith("1001 ")


def test_a_thousand_events_cost_less_than_a_tenth_of_a_second(tmp_path: Path):
    spool = Spool(tmp_path / "events", RUN)
    began = time.process_time()
    for number in range(1000):
        spool.append(text(number))
    assert time.process_time() - began < 0.5
