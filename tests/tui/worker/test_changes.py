"""A diff as files and lines with places, and what is kept of a person's reading of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import EnvironmentFault
from postroom.tui.worker.changes import Comment, Review, files_of, message
from tests.workspaces.bench import git, repository

DIFF = """\
diff --git a/src/a.py b/src/a.py
index 1..2 100644
--- a/src/a.py
+++ b/src/a.py
@@ -8,4 +8,4 @@ def f():
 kept
-old
--- a line of the file
+new
+++ another one
 end
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/logo.png b/logo.png
Binary files a/logo.png and b/logo.png differ
"""


def test_each_line_has_its_place_in_the_file_as_it_is_now():
    code, gone, logo = files_of(DIFF)
    assert (code.name, code.added, code.removed) == ("src/a.py", 2, 2)
    places = {line.text: line.number for line in code.lines if line.number}
    assert places == {
        " kept": 8,
        "-old": 9,
        "--- a line of the file": 9,
        "+new": 9,
        "+++ another one": 10,
        " end": 11,
    }
    assert code.now == ["kept", "new", "++ another one", "end"]
    assert (gone.name, gone.now, logo.name, logo.added) == ("gone.txt", [], "logo.png", 0)


def test_names_are_those_of_the_files_however_git_quotes_them(tmp_path: Path):
    app = repository(tmp_path / "app")
    names = {"a b.txt", "two b/x", 'quo"te\t.txt', "käse.txt", "empty b"}
    for name in names:
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text("" if name == "empty b" else "x\n")
    git(app, "add", ".")
    assert {file.name for file in files_of(git(app, "diff", "--cached"))} == names


def test_comments_are_one_text_with_places():
    said = [Comment("a.py", 9, "+new", "why?"), Comment("b.py", 0, "", "a test, please")]
    assert message(said) == (
        "Comments on your changes:\n\na.py:9\n    +new\nwhy?\n\nb.py\na test, please"
    )


@pytest.mark.requirement("screen-review")
def test_marks_and_comments_outlive_the_screen_and_are_shared_by_two(tmp_path: Path):
    file = tmp_path / "review.json"
    one, other = Review(file), Review(file)
    code = files_of(DIFF)[0]
    one.mark(code.digest("c"), seen=True)
    other.say("c", Comment("a.py", 9, "+new", "why?"))
    other.say("c", Comment("a.py", 2, "+x", "and why this?"))
    other.say("c", Comment("a.py", 9, "+new", "why, please?"))
    again = Review(file)
    assert again.seen(code.digest("c"))
    assert not again.seen(files_of(DIFF.replace("+new", "+newer"))[0].digest("c"))
    assert [said.text for said in again.comments("c")] == ["and why this?", "why, please?"]
    again.sent("c", again.comments("c")[:1])
    assert [said.text for said in Review(file).comments("c")] == ["why, please?"]
    assert file.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("found", ["", "[]", '{"seen": 1}', '{"seen": [], "comments": {"c": [1]}}'])
def test_a_file_that_cannot_be_read_is_no_mark_and_no_failure(tmp_path: Path, found: str):
    file = tmp_path / "review.json"
    file.write_text(found)
    review = Review(file)
    assert not review.comments("c")
    review.mark("d", seen=True)
    assert Review(file).seen("d")


def test_where_nothing_can_be_written_it_is_said_and_holds_for_this_run(tmp_path: Path):
    (tmp_path / "file").touch()
    review = Review(tmp_path / "file" / "review.json")
    with pytest.raises(EnvironmentFault, match="not kept"):
        review.mark("d", seen=True)
    assert review.seen("d")
    review.mark("e", seen=True)
