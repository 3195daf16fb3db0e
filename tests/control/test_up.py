"""How the end of a post room is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.control.up import _reported
from postroom.errors import NotRunning, PortTaken, PostroomError
from postroom.settings import Settings

pytestmark = pytest.mark.requirement("cli-errors-one-line")


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("outer", [ExceptionGroup("inner", list(errors))])


def test_our_own_error_is_told_wherever_it_is_in_a_group(tmp_path: Path):
    told = _reported(group(KeyError("x"), PortTaken("taken")), Settings(state=tmp_path))

    assert isinstance(told, PortTaken)


def test_our_own_error_is_told_as_it_is(tmp_path: Path):
    error = NotRunning("not there")

    assert _reported(error, Settings(state=tmp_path)) is error


def test_an_unforeseen_error_is_named_with_where_its_traceback_is(tmp_path: Path):
    told = _reported(group(KeyError("x")), Settings(state=tmp_path))

    assert type(told) is PostroomError
    assert str(told) == f"unexpected KeyError: 'x' (see {tmp_path / 'logs' / 'control.log'})"
