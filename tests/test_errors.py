"""The error tree: drawn as it is, each code once, and the same error on both ends of the HTTP API."""

from __future__ import annotations

import re

import pytest
from a2a.client.errors import A2AClientError
from hypothesis import given
from hypothesis import strategies as st

from postroom import errors
from postroom.errors import (
    EXIT_CODES,
    HTTP_STATUS,
    BusDisconnected,
    CallerError,
    Conflict,
    LostUpdate,
    MessageTooLarge,
    PostroomError,
    ServerFailed,
    StreamFull,
    Unauthorized,
    exit_code,
    from_problem,
    http_status,
    problem,
)
from postroom_a2a.sdk.errors import client_error

MODULES = {errors.__name__, PostroomError.__module__}
"""A user's own subclasses, and those of other tests, do not count."""


def _subclasses(root: type[PostroomError]) -> list[type[PostroomError]]:
    children = [child for child in root.__subclasses__() if child.__module__ in MODULES]
    return [root, *(found for child in children for found in _subclasses(child))]


ALL = _subclasses(PostroomError)


def _drawn() -> dict[str, str | None]:
    """Name to parent's name, as the module's docstring draws it."""
    line = re.compile(r"^    (?P<lead>[│├└─ ]*)(?P<name>[A-Z]\w+)(\s|$)")
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for found in filter(None, map(line.match, (errors.__doc__ or "").splitlines())):
        depth, name = len(found["lead"]), found["name"]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else None
        path.append((depth, name))
    return parents


def test_the_drawn_tree_is_the_tree_of_the_classes():
    classes = {
        kind.__name__: None if kind is PostroomError else kind.__bases__[0].__name__ for kind in ALL
    }

    assert _drawn() == classes


def test_no_two_errors_share_a_code():
    codes = [kind.code for kind in ALL]

    assert len(codes) == len(set(codes))


def test_each_error_states_a_code_of_its_own_in_small_letters_and_hyphens():
    for kind in ALL:
        assert "code" in vars(kind), kind
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)


def test_a_client_raises_what_the_server_raised():
    for kind in ALL:
        sent = kind("it does not fit", remedy="fold it")

        raised = from_problem(dict(problem(sent)), http_status(sent))

        assert type(raised) is kind
        assert (raised.message, raised.remedy) == ("it does not fit", "fold it")


@pytest.mark.requirement("cli-errors-one-line")
def test_a_problem_has_the_members_of_rfc_9457_and_the_code():
    for kind in ALL:
        assert problem(kind("it does not fit")) == {
            "type": f"urn:postroom:error:{kind.code}",
            "title": (kind.__doc__ or "").splitlines()[0],
            "status": http_status(kind("x")),
            "detail": "it does not fit",
            "code": kind.code,
            "remedy": "",
        }


@pytest.mark.parametrize(
    "status, kind", [(418, CallerError), (500, PostroomError), (399, PostroomError)]
)
def test_an_unknown_code_is_judged_by_its_status(status: int, kind: type[PostroomError]):
    assert type(from_problem({"code": "of-a-later-version"}, status)) is kind


@given(
    st.dictionaries(
        st.sampled_from(["code", "detail", "title", "remedy", "x"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    ),
    st.integers(100, 599),
)
def test_any_problem_document_becomes_an_error(document: dict[str, object], status: int):
    assert isinstance(from_problem(document, status), PostroomError)


@pytest.mark.requirement("cli-errors-one-line")
@pytest.mark.parametrize(
    "kind, status",
    [
        (PostroomError, 1),
        (CallerError, 1),
        (MessageTooLarge, 2),
        (errors.NotRunning, 3),
        (errors.UnknownRecipient, 4),
        (errors.NameTaken, 5),
        (Unauthorized, 6),
        (StreamFull, 7),
        (errors.NoResponders, 8),
        (errors.RequestTimeout, 9),
        (ServerFailed, 10),
    ],
)
def test_the_most_specific_class_decides_the_exit_code(kind: type[PostroomError], status: int):
    assert exit_code(kind("x")) == status


@pytest.mark.parametrize(
    "kind, status",
    [
        (PostroomError, 500),
        (errors.InvalidTemplate, 422),
        (MessageTooLarge, 413),
        (errors.UnknownRecipient, 404),
        (Conflict, 409),
        (errors.Forbidden, 403),
        (Unauthorized, 401),
        (errors.ProtocolViolation, 502),
        (errors.RequestTimeout, 504),
        (LostUpdate, 429),
        (StreamFull, 507),
        (BusDisconnected, 503),
    ],
)
def test_the_most_specific_class_decides_the_http_status(kind: type[PostroomError], status: int):
    assert http_status(kind("x")) == status


def test_a_fault_of_the_caller_never_has_a_status_of_the_server():
    # `CallerError` itself is only what a client makes of a code that it does not know.
    statuses = {kind: http_status(kind("x")) for kind in _subclasses(CallerError)[1:]}

    assert [kind for kind, status in statuses.items() if not 400 <= status < 500] == []


@pytest.mark.requirement("cli-errors-one-line")
def test_no_error_has_the_exit_code_of_success_or_of_an_interrupt():
    assert {0, 130}.isdisjoint(EXIT_CODES.values())
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_the_tables_name_only_classes_of_the_tree():
    assert set(EXIT_CODES) | set(HTTP_STATUS) <= set(ALL)


def test_the_text_of_an_error_ends_with_its_remedy():
    assert str(PostroomError("it is full", remedy="wait")) == "it is full (wait)"
    assert str(PostroomError("it is full")) == "it is full"


def test_the_sdk_s_forms_of_our_errors_do_not_take_their_codes():
    assert isinstance(client_error(errors.NoResponders("x")), errors.NoResponders)
    assert isinstance(client_error(errors.ServerFailed("x")), A2AClientError)
    for kind in (errors.NoResponders, errors.RequestTimeout):
        assert type(errors.from_problem({"code": kind.code}, 502)) is kind
