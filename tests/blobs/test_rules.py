"""Who may read a blob, as the log says it; no bus."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.blobs import rules
from postroom.projection.rules import fold, together
from postroom.protocol.blobs import blob_url
from postroom.protocol.envelope import TaskRequest
from postroom.store.blobs import BlobRow
from postroom.store.database import Store
from postroom.tasks.rules import ORDER
from postroom_a2a.messages import ROLE_AGENT, ROLE_USER, text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import apply, artifact_update, file_artifact, new_task
from tests.mail.log import ALICE, BOB, EVE, Record, Rows, envelope, inbox, post
from tests.tasks.log import FIRST, RULES, TASK, next_of, request, stored

ALL = together(RULES, rules.RULES)
NAME = "ab" * 32
WORKING = next_of(FIRST, TaskState.WORKING)


def fold_all(rows: Rows, *records: Record) -> None:
    for stream, record in records:
        fold(rows.store, ALL, stream, [record])


def upload(store: Store, uid: str) -> None:
    store.blobs.store_blob(BlobRow(NAME, 1, "text/plain", 1.0, 1.0), uid)


def readers(store: Store) -> list[str]:
    return [uid for uid in (ALICE, BOB, EVE) if store.blobs.readable(NAME, uid)]


def message(seq: int, sender: str, to: str, *, names: str = "") -> Record:
    said = envelope(f"m{seq}", to)
    part = {"url": blob_url(NAME)}
    return inbox(
        seq,
        replace(said, to=names or to, message=said.message | {"parts": [part]}),
        to=to,
        sender=sender,
    )


def artifact(seq: int, follows: int) -> Record:
    """Bob's result for Alice, by reference."""
    event = artifact_update(WORKING.task, file_artifact("a", blob_url(NAME), "", ""))
    record = replace(WORKING, task=apply(WORKING.task, event), event=event)
    return "TASKS", stored(seq, record, follows)


@pytest.mark.requirement("blob-kept-by-hash")
def test_only_a_reader_passes_a_blob_on():
    with Rows() as rows:
        upload(rows.store, ALICE)
        fold_all(rows, message(1, BOB, EVE))
        assert readers(rows.store) == [ALICE]
        fold_all(rows, message(2, ALICE, BOB))
        assert readers(rows.store) == [ALICE, BOB]
        fold_all(rows, message(3, BOB, EVE))
        assert readers(rows.store) == [ALICE, BOB, EVE]


def test_a_message_that_names_another_recipient_than_its_subject_passes_nothing_on():
    with Rows() as rows:
        upload(rows.store, ALICE)
        fold_all(rows, message(1, ALICE, BOB, names=EVE))
        assert readers(rows.store) == [ALICE]


@pytest.mark.requirement("blob-kept-by-hash")
def test_a_record_of_a_task_passes_a_blob_on_only_if_it_counts():
    with Rows() as rows:
        upload(rows.store, BOB)
        fold_all(rows, request(1), ("TASKS", stored(1, FIRST, 0)), ("TASKS", stored(2, WORKING, 1)))
        fold_all(rows, artifact(3, follows=1))
        assert readers(rows.store) == [BOB]
        fold_all(rows, artifact(4, follows=2))
        assert readers(rows.store) == [ALICE, BOB]


@pytest.mark.requirement("blob-kept-by-hash")
def test_who_names_a_blob_in_a_request_is_not_given_it_by_the_task_that_repeats_it():
    said = text_message("m", "what is this?", role=ROLE_USER)
    said["parts"].append({"url": blob_url(NAME)})
    for role in (ROLE_USER, ROLE_AGENT):
        asked = said | {"role": role}
        first = replace(FIRST, task=new_task(TASK, TASK, asked, 1001.0))
        with Rows() as rows:
            upload(rows.store, BOB)
            request = inbox(1, replace(envelope("m", request=TaskRequest()), message=asked))
            fold_all(rows, request, ("TASKS", stored(2, first, 0)))
            assert rows.store.tasks.task_by_id(TASK) is not None
            assert readers(rows.store) == [BOB]


def test_a_record_without_an_event_passes_on_what_its_worker_has_made():
    made = [file_artifact("a", blob_url(NAME), "", "")]
    with Rows() as rows:
        upload(rows.store, BOB)
        first = replace(FIRST, task=FIRST.task | {"artifacts": made})
        fold_all(rows, request(1), ("TASKS", stored(2, first, 0)))
        assert readers(rows.store) == [ALICE, BOB]


def test_a_record_that_names_a_blob_is_folded_behind_the_messages_before_it():
    assert ORDER["TASKS"].builds(artifact(3, follows=2)[1])
    assert not ORDER["TASKS"].builds(stored(2, WORKING, 1))


def test_what_is_named_is_kept_and_what_is_not_is_found_when_it_is_old():
    with Rows() as rows:
        upload(rows.store, ALICE)
        assert [row.sha256 for row in rows.store.blobs.unnamed_before(2.0)] == [NAME]
        assert rows.store.blobs.unnamed_before(1.0) == []
        fold_all(rows, message(1, ALICE, BOB))
        assert rows.store.blobs.unnamed_before(2.0) == []
        assert not rows.store.blobs.forget_unnamed(NAME, 2.0)


@pytest.mark.requirement("blob-kept-by-hash")
def test_a_post_passes_a_blob_on_to_everybody_if_its_sender_may_read_it():
    with Rows() as rows:
        upload(rows.store, ALICE)
        fold_all(rows, named(1, BOB), named(2, ALICE, to="#other"))
        assert readers(rows.store) == [ALICE]
        fold_all(rows, named(3, ALICE))
        assert readers(rows.store) == [ALICE, BOB, EVE]


def named(seq: int, sender: str, to: str = "#main") -> Record:
    """A post in the feed of `main`; with another `to` one that does not count."""
    said = replace(envelope(f"p{seq}", to), message={"parts": [{"url": blob_url(NAME)}]})
    return post(seq, said, sender=sender)
