"""Files, data and subjects on the command line: what agents wrote is shown and saved harmlessly."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from postroom.cli.content import Progress
from tests.cli.conftest import Run, spawned
from tests.client.standin import TASK, Standin, from_bob, post, task

CONTENT = "the content of a report\n"
SHA = hashlib.sha256(CONTENT.encode()).hexdigest()
URL = f"blob:sha256:{SHA}"
EMPTY = f"blob:sha256:{hashlib.sha256(b'').hexdigest()}"


def file(name: str, url: str = URL, kind: str = "application/pdf") -> dict[str, Any]:
    return {"url": url, "mediaType": kind, "filename": name}


def holding(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of bob's with these parts, as the API answers it."""
    texts = "\n".join(part["text"] for part in parts if "text" in part)
    files = [
        {"url": p["url"], "mediaType": "", "filename": "", "size": len(CONTENT)}
        for p in parts
        if "url" in p
    ]
    return from_bob(
        1, texts, id="ab12cd34", parts=list(parts), **({"files": files} if files else {}), **more
    )


def inbox(standin: Standin, *mails: dict[str, Any]) -> None:
    standin.answer("GET /v1/inbox", {"messages": list(mails)})
    standin.answer(f"GET /v1/blobs/{SHA}", CONTENT)
    for mail in mails:
        standin.answer(f"POST /v1/messages/{mail['id']}/seen", mail)


NASTY = "a\x1b]0;title\x07\x1b[31mb\u202e\nforged line"


@pytest.mark.requirement("text-controls-stripped")
def test_the_inbox_shows_each_part_on_a_line_of_its_own(postroom: Run, standin: Standin):
    parts = (
        {"text": "see these"},
        file("report.pdf"),
        {"data": {"n": 1}},
        {"raw": "AAECAw==", "filename": NASTY, "mediaType": "a\x1b[31mb\nc"},
        {"hologram": NASTY},
        {"url": "https://elsewhere.example/x\x1b[2J", "filename": "x"},
    )
    inbox(standin, holding(*parts, subject=NASTY, thread=NASTY))

    ended = postroom("inbox")

    shown = ended.out.splitlines()
    assert shown[0].endswith("@bob ab12cd34  thread ab forged line  (expects a reply)")
    assert shown[1:] == [
        "    subject: ab forged line",
        "    | see these",
        "    file report.pdf, 24 bytes, application/pdf",
        "    data, 8 bytes, application/json",
        "    file ab forged line, 4 bytes, ab c",
        "    a part of a kind that this version does not know (hologram), application/octet-stream",
        "    file x, 24 bytes, application/octet-stream, at https://elsewhere.example/x",
    ]
    assert ended.err == "--out DIR saves the files\n"


@pytest.mark.requirement("file-names-harmless")
def test_saved_files_stay_in_their_folder_whatever_they_are_called(
    postroom: Run, standin: Standin, tmp_path: Path
):
    names = [
        "../../up.pdf",
        "/etc/passwd",
        "..",
        ".hidden",
        "-rf",
        "two\nlines",
        "x" * 300 + ".pdf",
    ]
    names += ["same.pdf", "SAME.pdf", "same.pdf"]
    inbox(standin, holding(*(file(name) for name in names)))

    ended = postroom("inbox", "--out", str(tmp_path / "saved"))

    folder = tmp_path / "saved" / "ab12cd34"
    harmless = ["_.._up.pdf", "_etc_passwd", "file.pdf", "hidden", "rf", "two lines"]
    harmless += ["x" * 116 + ".pdf", "same.pdf", "SAME-2.pdf", "same-3.pdf"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(harmless)
    assert all(path.read_text() == CONTENT for path in folder.iterdir())
    of_the_room = {"server.json", "lock", "control.sock"}
    assert {path.name for path in tmp_path.iterdir()} == {"saved", *of_the_room}
    assert len(ended.out.splitlines()) == 2 * len(names) + 1
    assert "\x1b" not in ended.out


@pytest.mark.requirement("file-names-harmless")
def test_a_file_that_is_there_is_replaced_with_force_alone(
    postroom: Run, standin: Standin, tmp_path: Path
):
    inbox(standin, holding(file("report.pdf")))
    there = tmp_path / "ab12cd34" / "report.pdf"
    there.parent.mkdir()
    there.write_text("mine")

    refused = postroom("inbox", "--out", str(tmp_path))

    assert (refused.status, there.read_text()) == (5, "mine")
    assert "report.pdf is there already" in refused.err
    assert standin.calls("POST /v1/messages/ab12cd34/seen") == []

    assert postroom("inbox", "--out", str(tmp_path), "--force").status == 0
    assert there.read_text() == CONTENT


@pytest.mark.requirement("file-names-harmless")
def test_a_link_in_the_folder_is_not_written_through(
    postroom: Run, standin: Standin, tmp_path: Path
):
    inbox(standin, holding(file("report.pdf")))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    link = tmp_path / "ab12cd34" / "report.pdf"
    link.parent.mkdir()
    link.symlink_to(precious)

    assert postroom("inbox", "--out", str(tmp_path)).status == 5
    assert postroom("inbox", "--out", str(tmp_path), "--force").status == 0

    assert (precious.read_text(), link.is_symlink(), link.read_text()) == ("mine", False, CONTENT)


def test_every_kind_of_part_is_saved(postroom: Run, standin: Standin, tmp_path: Path):
    raw = bytes(range(256))
    parts = (
        {"text": "not a file"},
        {"data": {"a": ["ü", None]}},
        {"raw": base64.b64encode(raw).decode(), "mediaType": "image/png"},
        {"hologram": {"depth": 3}, "tomorrow": 1},
        file("nothing.txt", EMPTY),
        {"url": "https://elsewhere.example/x", "filename": "x"},
    )
    inbox(standin, holding(*parts))
    standin.answer(f"GET /v1/blobs/{EMPTY.rpartition(':')[2]}", "")

    ended = postroom("inbox", "--out", str(tmp_path))

    folder = tmp_path / "ab12cd34"
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.json",
        "file.png",
        "nothing.txt",
        "part.json",
    ]
    assert json.loads((folder / "data.json").read_text()) == {"a": ["ü", None]}
    assert (folder / "file.png").read_bytes() == raw
    assert json.loads((folder / "part.json").read_text()) == {
        "hologram": {"depth": 3},
        "tomorrow": 1,
    }
    assert (folder / "nothing.txt").read_bytes() == b""
    assert "at https://elsewhere.example/x: not fetched" in ended.err
    assert ended.status == 0


def test_a_blob_with_another_content_leaves_no_file(
    postroom: Run, standin: Standin, tmp_path: Path
):
    standin.answer(f"GET /v1/blobs/{SHA}", "something else")
    inbox(standin, holding(file("report.pdf")))

    ended = postroom("inbox", "--out", str(tmp_path))

    assert ended.status == 8
    assert list((tmp_path / "ab12cd34").iterdir()) == []


def test_json_has_every_part_and_what_was_saved_is_said_beside(
    postroom: Run, standin: Standin, tmp_path: Path
):
    mail = holding(file("report.pdf"), {"hologram": 1}, subject="s", thread="t")
    inbox(standin, mail)

    ended = postroom("inbox", "--json", "--out", str(tmp_path))

    assert json.loads(ended.out) == {"messages": [mail]}
    assert "report.pdf" in ended.err


@pytest.mark.requirement("file-names-harmless")
def test_the_results_of_a_task_are_saved_under_harmless_names(
    postroom: Run, standin: Standin, tmp_path: Path
):
    def artifact(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
        text = "".join(part.get("text", "") for part in parts)
        return {"id": "a1", "name": name, "text": text, "parts": list(parts)}

    artifacts = [
        artifact("../notes.md", {"text": "# notes"}),
        artifact("plan", {"text": "a plan"}, {"data": [1]}),
        artifact("", file("report.pdf")),
        artifact("again", file("report.pdf")),
    ]
    standin.answer("GET /v1/tasks/ab12cd34", task(state="completed", artifacts=artifacts))
    standin.answer(f"GET /v1/blobs/{SHA}", CONTENT)

    ended = postroom("task", "get", "ab12cd34", "--out", str(tmp_path / "out"))

    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == {
        "_notes.md": "# notes",
        "plan.txt": "a plan",
        "plan.json": "[\n  1\n]\n",
        "report.pdf": CONTENT,
        "report-2.pdf": CONTENT,
    }
    assert len(ended.out.splitlines()) == 5

    standin.answer("GET /v1/tasks/00000000", task(id="0" * 32, artifacts=[]))
    assert "has no results" in postroom("task", "get", "00000000", "--out", str(tmp_path)).err


def test_a_task_is_shown_with_the_parts_of_its_request_its_changes_and_results(
    postroom: Run, standin: Standin
):
    update = {
        "seq": 2,
        "task": TASK,
        "state": "input-required",
        "attempt": 1,
        "runner": "r",
        "at": task()["created_at"],
        "kind": "status",
        "text": "which one?",
        "parts": [{"text": "which one?"}, {"data": [1, 2]}],
        "artifact": None,
        "answer": "",
        "final": False,
    }
    answered = update | {"seq": 3, "state": "working", "text": "", "parts": []}
    answered |= {"answer_parts": [file("choice.png")]}
    result = {"id": "a1", "name": "it", "text": "", "parts": [file("report.pdf")]}
    result["files"] = [file("report.pdf") | {"size": 12_345}]
    shown = task(
        parts=[{"text": "review it"}, file("draft.pdf")], subject="Draft", artifacts=[result]
    )
    standin.answer(f"GET /v1/tasks/{TASK}", shown)
    standin.answer(f"GET /v1/tasks/{TASK}/events", {"events": [update, answered]})
    standin.answer(f"GET /v1/tasks/{TASK}/messages", {"messages": []})

    out = postroom("task", "show", TASK).out

    assert "    subject: Draft\n    | review it\n    file draft.pdf, application/pdf\n" in out
    assert "which one?\n    | data, 6 bytes, application/json\n" in out
    assert "answered: file choice.png, application/pdf\n" in out
    assert "    file report.pdf, 12.3 kB, application/pdf\n" in out
    assert f"    postroom blob get {URL} -o report.pdf\n" in out


def test_an_answer_with_files_gives_the_output_what_a_script_wants(postroom: Run, standin: Standin):
    answer = holding({"text": "here"}, file("report.pdf"), {"data": {"n": 1}})
    asked = holding({"text": "?"}, state="answered") | {"id": "m1", "answer": answer}
    standin.answer("GET /v1/messages/m1", asked)
    standin.answer("POST /v1/messages/ab12cd34/seen", answer)

    ended = postroom("receipt", "m1", "--wait", "answered")

    assert ended.out == f'here\n{URL}\n{{"n": 1}}\n'
    assert "file report.pdf, 24 bytes, application/pdf" in ended.err


def test_a_search_shows_the_oldest_first_and_asks_for_what_is_wanted(
    postroom: Run, standin: Standin
):
    old = from_bob(1, "invoice one", subject="Invoice")
    standin.answer(
        "GET /v1/messages", {"messages": [from_bob(2, "invoice two"), old], "next": None}
    )

    ended = postroom(
        "search", "invoice", "may", "--thread", "t 1", "--with", "@bob", "--limit", "2"
    )

    assert standin.requests[-1].query == {
        "text": "invoice may",
        "thread": "t 1",
        "with": "@bob",
        "limit": "2",
    }
    assert ended.out.index("invoice one") < ended.out.index("invoice two")
    assert "@bob to @alice" in ended.out


def test_a_search_shows_posts_of_projects_too(postroom: Run, standin: Standin):
    standin.answer("GET /v1/messages", {"messages": [], "next": None})
    standin.answer("GET /v1/projects", {"projects": ["web"], "next": None})
    post = {
        "id": "ab" * 16,
        "seq": 3,
        "project": "web",
        "from": {"uid": "u", "nick": "bob", "kind": "worker"},
        "text": "release on friday",
        "parts": [],
        "subject": "",
        "thread": None,
        "at": "2026-01-01T00:00:00.000Z",
    }
    standin.answer("GET /v1/projects/web/posts", {"posts": [post], "next": None})

    ended = postroom("search", "friday", "release")

    assert standin.requests[-1].query == {"text": "friday release", "limit": "50"}
    assert "@bob to #web" in ended.out
    assert "release on friday" in ended.out
    assert "no messages" not in ended.out


# ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words, said",
    [
        (("--type", "text/plain"), "--type is the media type of one --file"),
        (("--file", "a", "--file", "b", "--type", "text/plain"), "--type is the media type"),
        (("-", "--file", "-"), "standard input can be read once only"),
        (("--data", "{"), "is not JSON"),
        (("--data", "NaN"), "is not JSON"),
        (("--data", "@missing.json"), "'missing.json' cannot be read"),
        (("--file", "missing\x1b[31m.pdf"), "'missing.pdf' cannot be read"),
        (("--file", "a.pdf", "--type", "pdf"), "'pdf' is not a media type"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_a_call(
    postroom: Run, standin: Standin, words: tuple[str, ...], said: str
):
    ended = postroom("send", "@bob", *words)

    assert ended.status == 2
    assert said in ended.err
    assert standin.requests == []


def test_a_file_is_uploaded_by_its_hash_and_named_by_the_part(
    postroom: Run, standin: Standin, tmp_path: Path
):
    stored = {"url": URL, "sha256": SHA, "size": len(CONTENT)}
    standin.answer(f"PUT /v1/blobs/{SHA}", stored, 201)
    standin.answer("POST /v1/messages", holding(file("x")), 201)
    path = tmp_path / "two\nlines.pdf"
    path.write_text(CONTENT)

    assert postroom("send", "@bob", "look", "--file", str(path)).status == 0
    assert postroom("send", "@bob", "--file", str(path), "--type", "text/x-mine").status == 0

    first, second = standin.calls(f"PUT /v1/blobs/{SHA}")
    assert (first.body, first.headers["content-type"]) == (CONTENT.encode(), "application/pdf")
    assert second.headers["content-type"] == "text/x-mine"
    bodies = [call.body for call in standin.calls("POST /v1/messages")]
    named = {"url": URL, "filename": "two\nlines.pdf"}
    assert [body.get("text") for body in bodies] == ["look", None]
    assert [body["parts"] for body in bodies] == [
        [named | {"mediaType": "application/pdf"}],
        [named | {"mediaType": "text/x-mine"}],
    ]


def test_a_long_upload_says_how_far_it_is(capsys: pytest.CaptureFixture[str]):
    now = iter((0.0, 0.5, 1.5, 1.5, 3.0, 3.0))
    progress = Progress("report.pdf", 4_000_000, clock=lambda: next(now))
    for _ in range(3):
        progress.moved(1_000_000)
    progress.end()

    # Not on a terminal: one line, since a log needs no second one.
    assert capsys.readouterr().err == "uploading report.pdf: 2.0 MB of 4.0 MB\n"


def test_data_subject_and_thread_go_into_the_body(postroom: Run, standin: Standin, tmp_path: Path):
    standin.answer("POST /v1/messages", holding({"data": 1}), 201)
    value = tmp_path / "value.json"
    value.write_text('{"ü": [1, 2.5]}')

    ended = postroom(
        "send", "@bob", "--data", f"@{value}", "--data", "3", "--subject", "S", "--thread", "t"
    )

    assert ended.status == 0
    body = standin.requests[-1].body
    assert body.pop("key")
    assert body == {
        "to": "@bob",
        "expects_reply": True,
        "parts": [{"data": {"ü": [1, 2.5]}}, {"data": 3}],
        "subject": "S",
        "thread": "t",
    }


def test_watch_and_dead_letters_name_the_parts_in_their_line(postroom: Run, standin: Standin):
    shown_of = ("from", "to", "text", "parts", "files", "subject", "thread", "task")
    whole = holding({"text": "look"}, file("report.pdf"), subject="S")
    dead = {name: whole[name] for name in shown_of if name in whole}
    dead |= {"id": 7, "message_id": "m1", "at": task()["created_at"], "requeued_as": None}
    dead |= {"bus_subject": "worker.x.inbox.y", "reason": "why", "attempts": 3}
    standin.answer("GET /v1/deadletters", {"deadletters": [dead]})
    standin.answer("GET /v1/deadletters/7", dead)

    listed, shown = postroom("deadletters", "list").out, postroom("deadletters", "show", "7").out

    assert "S: look [file report.pdf, 24 bytes, application/pdf]" in listed
    assert shown.endswith(
        "    subject: S\n    | look\n    file report.pdf, 24 bytes, application/pdf\n"
    )


def test_a_chat_shows_files_and_sends_none_for_a_line_of_a_pipe(standin: Standin, tmp_path: Path):
    said = post(1, "") | {"parts": [file("report.pdf")], "subject": "S"}
    standin.answer("GET /v1/projects", {"projects": ["main"]})
    standin.answer("GET /v1/projects/main/posts", {"posts": [said]})
    standin.answer("POST /v1/projects/main/posts", post(2, "/file mine"), 201)
    standin.stream()

    ended = spawned(["--state", str(tmp_path), "chat", "#main"], stdin="/file mine\n")

    assert "[bob]\n    subject: S\n    file report.pdf, application/pdf\n" in ended.out
    (sent,) = standin.calls("POST /v1/projects/main/posts")
    assert (sent.body["text"], "parts" in sent.body) == ("/file mine", False)
