"""The table of settings: complete, and the same in the sources, in the environment and in the documents."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from postroom.errors import InvalidInput
from postroom.sandbox.select import CHOICES
from postroom.settings import Settings
from postroom.settings.option import Option, ValueKind
from postroom.settings.options import BESIDE, BY_FIELD, BY_KEY, INSIDE, OPTIONS, SANDBOXES
from tools import settings as document

SOURCES = Path(__file__).parents[2] / "src"
VARIABLE = re.compile(r"(?<![A-Z_])POSTROOM_[A-Z0-9_]*[A-Z0-9]")
NOT_CHOSEN = {"state", "host", "memory", "org"}
"""Fields of `Settings` that are of one run, or say where the files are."""


def named_in_sources() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    return {name for text in texts for name in VARIABLE.findall(text)}


@pytest.mark.requirement("settings-precedence")
def test_every_variable_in_the_sources_is_in_the_documents_table_and_the_other_way_round():
    table = document.DOCUMENT.read_text(encoding="utf-8").partition(document.BEGIN)[2]
    rows = [line for line in table.partition(document.END)[0].splitlines() if "POSTROOM_" in line]

    in_rows = [name for row in rows for name in VARIABLE.findall(row)]

    assert sorted(in_rows) == sorted(named_in_sources())


@pytest.mark.requirement("settings-precedence")
def test_the_documents_table_is_as_the_code_has_it():
    text = document.DOCUMENT.read_text(encoding="utf-8")

    assert document.written(text) == text, "stale; write it with: python -m tools.settings"


@pytest.mark.requirement("settings-precedence")
def test_every_field_that_an_operator_may_choose_has_one_setting():
    assert set(BY_FIELD) | NOT_CHOSEN == {field.name for field in fields(Settings)}
    assert len(BY_KEY) == len(BY_FIELD) == len(OPTIONS)
    variables = [one.variable for one in OPTIONS]
    assert len({*variables, *BESIDE, *INSIDE}) == len(variables) + len(BESIDE) + len(INSIDE)


@pytest.mark.parametrize("one", OPTIONS, ids=lambda one: one.key)
def test_each_default_is_a_value_that_may_be_chosen(one: Option):
    default = getattr(Settings(state=Path()), one.field)
    if default not in {None, "", ()}:
        assert one.from_text(str(default), one.key) == default


def test_the_sandboxes_that_may_be_chosen_are_those_that_there_are():
    assert set(SANDBOXES) == set(CHOICES)


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "key, text, expected",
    [
        ("http.port", "x", "port, 0 to 65535"),
        ("http.port", "65536", "port, 0 to 65535"),
        ("http.port", "-1", "port, 0 to 65535"),
        ("http.port", "1.5", "port, 0 to 65535"),
        ("http.port", "", "port, 0 to 65535"),
        ("audit.files", "0", "at least 1"),
        ("workers.stop_grace", "nan", "at least 0.1"),
        ("workers.stop_grace", "inf", "at least 0.1"),
        ("tls.mode", "never", "one of: auto, always"),
        ("tls.mode", "Always", "one of: auto, always"),
        ("opensandbox.image", "a\x1bb", "text"),
        ("nats.ca", "", "path of a file"),
    ],
)
def test_what_cannot_be_a_value_is_refused_with_what_can(key: str, text: str, expected: str):
    with pytest.raises(InvalidInput, match=f"^{key} is ") as caught:
        BY_KEY[key].from_text(text, key)

    assert expected in caught.value.remedy


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "key, value",
    [
        ("http.port", "80"),
        ("http.port", True),
        ("http.port", 80.0),
        ("nats.url", "nats://a"),
        ("nats.url", [1]),
        ("nats.ca", 1),
        ("tls.mode", ["auto"]),
        ("workers.stop_grace", True),
    ],
)
def test_a_file_must_have_the_type_of_the_setting(key: str, value: object):
    with pytest.raises(InvalidInput):
        BY_KEY[key].from_toml(value, key, Path())


@pytest.mark.requirement("settings-precedence")
def test_a_secret_is_not_in_the_error_that_refuses_it():
    with pytest.raises(InvalidInput) as caught:
        BY_KEY["opensandbox.key"].from_text("s3cret\n", "opensandbox.key")

    assert "s3cret" not in str(caught.value)


def test_no_kind_of_value_is_left_without_a_setting():
    assert {one.kind for one in OPTIONS} == set(ValueKind)
