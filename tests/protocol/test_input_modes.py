"""Whether an agent takes a message, by its card."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.directory.cards import build_card
from postroom.errors import ContentNotTaken, exit_code, http_status
from postroom.protocol.parts import check_takes, input_modes, takes
from postroom.protocol.template import Template
from postroom_a2a.rpc import Code, RpcError

TEXT = {"text": "hello"}
DATA = {"data": {"a": 1}}
PDF = {"url": "blob:sha256:0", "mediaType": "application/pdf", "filename": "report\x1b[31m.pdf"}
PNG = {"raw": "", "mediaType": "image/png"}
NEWER = {"hologram": 1}


def card(*modes: str, **skills: list[str]) -> dict[str, Any]:
    listed = [{"id": name, "inputModes": own} for name, own in skills.items()]
    return {"defaultInputModes": list(modes), "skills": [{"id": "plain"}, *listed]}


@pytest.mark.parametrize(
    "modes, taken",
    [
        (["text/plain"], [TEXT, {"text": "# a", "mediaType": "text/markdown"}]),
        (["text/*"], [TEXT, {"url": "x", "mediaType": "text/csv"}]),
        (["image/*", "application/pdf"], [PDF, PNG]),
        (["APPLICATION/JSON; charset=utf-8"], [DATA]),
        (["*/*"], [TEXT, DATA, PDF, PNG, NEWER, None]),
        (["text", "file"], [TEXT, PDF, PNG]),
    ],
)
def test_a_mode_covers_the_parts_of_its_type(modes: list[str], taken: list[Any]):
    everything = [TEXT, DATA, PDF, PNG, NEWER]
    assert all(takes(modes, part) for part in taken)
    assert [part for part in everything if takes(modes, part)] == [
        part for part in everything if part in taken
    ]


def test_the_error_names_the_part_its_type_and_what_is_taken():
    with pytest.raises(ContentNotTaken) as caught:
        check_takes(card("text/plain", "application/json"), [TEXT, PDF], "reader")
    error = caught.value
    assert error.message == "@reader does not take part 2 (report.pdf): file, application/pdf"
    assert error.remedy.startswith("it takes text/plain, application/json;")
    assert (exit_code(error), http_status(error), error.code) == (2, 415, "content-not-taken")
    assert RpcError.of(error).code is Code.CONTENT_TYPE_NOT_SUPPORTED


def test_a_part_of_a_newer_kind_goes_only_to_who_takes_everything():
    check_takes(card("*/*"), [NEWER], "reader")
    with pytest.raises(ContentNotTaken, match="an unknown kind of part"):
        check_takes(card("text/plain"), [NEWER], "reader")


def test_an_unknown_card_takes_everything():
    check_takes(None, [TEXT, DATA, PDF, PNG, NEWER], "reader")
    check_takes(card(), [PDF], "reader")


def test_the_modes_of_a_skill_count_for_its_tasks_alone():
    reader = card("text/plain", images=["image/png"])
    check_takes(reader, [PNG], "reader", skill="images")
    for skill in ("", "plain", "unknown"):
        with pytest.raises(ContentNotTaken):
            check_takes(reader, [PNG], "reader", skill=skill)


@pytest.mark.parametrize("adapter, taken", [("jsonl", True), ("text", False)])
def test_the_card_of_a_worker_says_what_its_adapter_carries(adapter: str, taken: bool):
    template = Template(name="reader", command=("true",), adapter=adapter)
    modes = input_modes(build_card("a" * 32, "reader", template, version="1"))
    assert [takes(modes, part) for part in (TEXT, DATA, PDF, PNG)] == [True, taken, taken, taken]
