"""Completion: what the word at the cursor may become."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.tui.typing.completing import Candidate, Known, complete, paths

KNOWN = Known(
    agents=[Candidate("@coder"), Candidate("@critic"), Candidate("@lead")],
    workers=[Candidate("@coder"), Candidate("@critic")],
    projects=[Candidate("#demo"), Candidate("#main")],
    approvals=[Candidate("ab12cd34", "@coder: make")],
    questions=[Candidate("77aa77aa")],
    tasks=[Candidate("77aa77aa"), Candidate("88bb88bb")],
    templates=("claude-code", "codex"),
    paths=paths,
)


def words(line: str, known: Known = KNOWN) -> list[str]:
    return [each.word for each in complete(line, len(line), known).candidates]


def test_commands_nicks_and_ids_complete_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a template may be a file there
    assert words("/de") == ["/delegate", "/deny"]
    assert words("/stop ") == ["@coder", "@critic"]
    assert words("/msg ") == ["@coder", "@critic", "@lead"]
    assert words("/msg @c") == ["@coder", "@critic"]
    assert words("/join m") == ["#main"]
    assert words("/approve ") == ["ab12cd34"]
    assert words("/answer ") == ["77aa77aa"]
    assert words("/cancel 8") == ["88bb88bb"]
    assert words("/help st") == ["stop"]
    assert words("/spawn c") == ["claude-code", "codex"]
    assert words("/spawn codex --as ") == ["worktree", "copy", "direct"]
    assert "--workspace" in words("/spawn codex --")


def test_a_text_is_left_alone_but_for_nicks_and_projects() -> None:
    assert words("tell @l") == ["@lead"]
    assert words("see #d") == ["#demo"]
    assert words("tell le") == []
    assert words("/msg @coder tell @l") == ["@lead"]
    assert words("//stop ") == []


def test_the_word_at_the_cursor_is_completed_not_the_last_one() -> None:
    found = complete("/msg @c hello", len("/msg @c"), KNOWN)

    assert (found.start, found.end) == (5, 7)
    assert found.common == "@c"


def test_files_complete_quoted_and_folders_go_on(tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").touch()
    (tmp_path / "my folder").mkdir()
    (tmp_path / ".hidden").touch()

    assert words(f"/file {tmp_path}/my") == [
        f"'{tmp_path}/my folder/'",
        f"'{tmp_path}/my notes.txt'",
    ]
    assert words(f"/file '{tmp_path}/my n") == [f"'{tmp_path}/my notes.txt'"]
    assert words(f"/spawn codex --workspace {tmp_path}/") == [f"'{tmp_path}/my folder/'"]
    assert words(f"/file {tmp_path}/.h") == [f"{tmp_path}/.hidden"]
    assert words("/file /does/not/exist/") == []
    assert words("/file x\0/") == []


@given(st.text(max_size=30), st.integers(0, 30))
def test_any_line_can_be_completed(line: str, cursor: int) -> None:
    cursor = min(cursor, len(line))

    found = complete("/spawn " + line, cursor + 7, KNOWN)

    assert 0 <= found.start <= found.end == cursor + 7
