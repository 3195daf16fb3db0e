"""How much is done unasked, and what counts as an edit of a file."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.protocol.autonomy import Autonomy, is_edit, word_of

HOME = "/workspace"


@pytest.mark.parametrize(
    "kept, autonomous, task, word",
    [
        ({}, False, "t1", "ask"),
        ({}, True, "t1", "all"),
        ({"": "ask"}, True, "t1", "ask"),
        ({"": "edits"}, False, "", "edits"),
        ({"": "ask", "t1": "all"}, False, "t1", "all"),
        ({"": "all", "t1": "ask"}, False, "t1", "ask"),
        ({"t1": "all"}, False, "t2", "ask"),
        ({"t1": "all"}, False, "", "ask"),
        ({"": "everything"}, True, "", "ask"),
    ],
)
def test_what_is_set_for_a_task_counts_before_what_is_set_for_all_and_that_before_the_template(
    kept: dict[str, str], autonomous: bool, task: str, word: str
):
    assert word_of(kept, autonomous=autonomous, task=task) is Autonomy(word)


@pytest.mark.requirement("autonomy-set")
@pytest.mark.parametrize(
    "tool, given",
    [
        ("Edit", {"file_path": "/workspace/src/a.py", "old_string": "x", "new_string": ".y"}),
        ("Write", {"file_path": "a.py", "content": "rm -rf /"}),
        ("edit", {"path": "a, b", "changes": [{"path": "a"}, {"path": "/workspace/b"}]}),
        ("NotebookEdit", {"notebook_path": "x/./y.ipynb", "new_source": ""}),
    ],
)
def test_a_change_of_files_in_the_folder_is_an_edit(tool: str, given: dict[str, Any]):
    assert is_edit(tool, given, HOME)


@pytest.mark.requirement("autonomy-set")
@pytest.mark.parametrize(
    "tool, given",
    [
        ("Bash", {"command": "touch a"}),
        ("Edit", {"file_path": "a", "command": "touch a"}),
        ("Edit", {"edits": [{"path": "a", "script": ["x"]}]}),
        ("Edit", {}),
        ("Edit", {"file_path": ["/etc/passwd"]}),
        ("Edit", {"file_path": {"path": "/etc/passwd"}}),
        ("Edit", {"file_path": 1}),
        ("WebFetch", {"url": "https://a.example"}),
        *(
            ("Edit", {"file_path": path})
            for path in (
                *(
                    "",
                    "~/a",
                    "/etc/passwd",
                    "../a",
                    "a/../../b",
                    "/workspace",
                    "/workspace2/a",
                    ".",
                ),
                *(".git/hooks/post-commit", "a/.claude/settings.json", ".envrc", "/workspace/.x/a"),
            )
        ),
        ("edit", {"path": "a", "changes": [{"path": "a"}, {"path": "/etc/x"}]}),
        ("edit", {"path": "a", "changes": {"/etc/x": {"add": "b"}}}),
        ("edit", {"path": "a", "target_file": "/etc/x"}),
        ("edit", {"path": "a", "url": "https://a.example"}),
        ("edit", {"path": "a", "changes": [{"path": "a", "move_path": ".git/config"}]}),
    ],
)
def test_what_could_run_something_or_lies_elsewhere_is_no_edit(tool: str, given: dict[str, Any]):
    assert not is_edit(tool, given, HOME)


def test_without_a_known_folder_there_is_no_edit():
    assert not is_edit("Edit", {"file_path": "a"}, "")
