"""What somebody says: the parts of an A2A Message, its subject and its thread (A2A 1.0, section 4.1.4 to 4.1.6). Pure.

A part is A2A JSON with exactly one of `text`, `data`, `url` and `raw`; unknown keys are kept. The thread is the
Message's `contextId`; the subject, one line, is in its metadata, since A2A has no field for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol import shapes
from postroom.protocol.blobs import PREFIX
from postroom.protocol.limits import MAX_LABEL, MAX_LINK, MAX_PARTS
from postroom.protocol.tasks import SKILL, TASK_ID
from postroom.protocol.traces import trace_of, traced
from postroom_a2a import messages
from postroom_a2a.messages import ROLE_AGENT, context_fault, context_of, files_of, texts_of
from postroom_a2a.text import one_line

SUBJECT = "urn:postroom:subject"
"""Key of the subject in a Message's metadata."""

ABOUT = "urn:postroom:about-task"
"""Key in a Message's metadata: id of the task that it brings news of."""

REFERENCES = "referenceTaskIds"
"""Member of a Message: the tasks that it refers to."""

MAX_REFERENCES = 16
"""Tasks that a request is shown to refer to."""

_OWN = frozenset({"messageId", "role", "parts", "contextId", "taskId"})
"""Members of a Message that are not content, or have a field of their own."""

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """What somebody says.

    Attributes:
        subject: one line, "" for none.
        thread: id of the conversation, "" for none.
        more: all other members of the Message, such as metadata and extensions, as an A2A client has written them.
    """

    parts: tuple[Part, ...]
    subject: str = ""
    thread: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str, *, subject: str = "", thread: str = "") -> Content:
        """One text part."""
        return cls(({"text": text},), subject, thread)

    @classmethod
    def given(
        cls, text: str = "", parts: Iterable[Part] = (), *, subject: str = "", thread: str = ""
    ) -> Content:
        """`text`, if any, before `parts`: as a caller of the API or an agent gives them.

        Raises:
            InvalidInput: as `check`.
        """
        said = cls((*([{"text": text}] if text else []), *parts), subject, thread)
        said.check()
        return said

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Content:
        """The content of a Message that anyone may have made: what is malformed in it is left out."""
        return cls(tuple(parts_of(message)), subject_of(message), context_of(dict(message)))

    @classmethod
    def whole(cls, message: Mapping[str, Any]) -> Content:
        """The content of the Message of an A2A client, with everything that is in it.

        Raises:
            InvalidInput: as `check`; nothing is left out in silence.
        """
        more = {name: value for name, value in message.items() if name not in _OWN}
        parts = message.get("parts")
        said = cls(
            tuple(parts) if isinstance(parts, list) else (),
            subject_of(message),
            str(message.get("contextId") or ""),
            more,
        )
        said.check()
        return said

    @property
    def text(self) -> str:
        """The text parts, one per line."""
        return "\n".join(texts_of({"parts": list(self.parts)}))

    @property
    def empty(self) -> bool:
        """Whether it says nothing: no part, or blank texts alone."""
        return all(
            isinstance(part, Mapping) and "text" in part and not str(part["text"]).strip()
            for part in self.parts
        )

    def check(self) -> None:
        """Raise InvalidInput, which names the part and what is wrong, unless it is well-formed and says something."""
        if self.empty:
            raise InvalidInput("a message needs a text, data or a file")
        if len(self.parts) > MAX_PARTS:
            raise InvalidInput(f"a message has at most {MAX_PARTS} parts")
        if self.subject != one_line(self.subject, MAX_LABEL):
            raise InvalidInput(
                f"a subject is one line of at most {MAX_LABEL} characters, without control characters"
            )
        if fault := context_fault(self.thread):
            raise InvalidInput(fault)
        if not isinstance(self.more.get("metadata"), Mapping | None):
            raise InvalidInput("the metadata of a message have to be an object")
        for number, part in enumerate(self.parts, 1):
            if fault := part_fault(part):
                raise InvalidInput(f"part {number} {fault}")

    def referring(self, task: str) -> Content:
        """The same, with that task as the one it refers to, unless it names some itself; "" for none."""
        if not task or REFERENCES in self.more:
            return self
        return replace(self, more={**self.more, REFERENCES: [task]})

    def traced(self, trace: str) -> Content:
        """The same, as a part of that trace, unless it is of one already; "" for none."""
        if not trace or trace_of(self.more):
            return self
        return replace(self, more=traced(dict(self.more), trace))

    def message(self, message_id: str, role: str = ROLE_AGENT) -> dict[str, Any]:
        """The A2A Message."""
        said: dict[str, Any] = {
            "messageId": message_id,
            "role": role,
            "parts": [dict(part) for part in self.parts],
            **self.more,
        }
        if self.thread:
            said["contextId"] = self.thread
        if self.subject:
            said["metadata"] = {**(said.get("metadata") or {}), SUBJECT: self.subject}
        return said


def content(said: Content | str) -> Content:
    """`said`, checked; a text is a content of one text part.

    Raises:
        InvalidInput: as `Content.check`.
    """
    made = Content.of_text(said) if isinstance(said, str) else said
    made.check()
    return made


def says_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two Messages say the same in the same place, whatever else is in their metadata, such as a trace."""
    return _essence(one) == _essence(other)


def _essence(message: Mapping[str, Any]) -> list[Any]:
    metadata = message.get("metadata")
    skill = metadata.get(SKILL) if isinstance(metadata, Mapping) else None
    places = [message.get(name) or None for name in ("parts", "contextId", "taskId", REFERENCES)]
    return [*places, subject_of(message), skill or None]


def references_in(message: Mapping[str, Any]) -> list[str]:
    """The ids of tasks that a Message refers to; what is no id of a task of ours is left out."""
    named = message.get(REFERENCES)
    if not isinstance(named, list):
        return []
    ids = (each for each in named if isinstance(each, str) and TASK_ID.fullmatch(each))
    return list(islice(ids, MAX_REFERENCES))


def about_in(message: Mapping[str, Any]) -> str:
    """The id of the task that a Message brings news of, as its sender says; "" for none."""
    metadata = message.get("metadata")
    named = metadata.get(ABOUT) if isinstance(metadata, Mapping) else None
    return named if isinstance(named, str) and TASK_ID.fullmatch(named) else ""


def part_fault(part: object) -> str:
    """What is wrong with a part, "" for nothing."""
    if (fault := messages.part_fault(part)) or not isinstance(part, Mapping):
        return fault
    for key, most in (("mediaType", MAX_LABEL), ("filename", MAX_LABEL), ("url", MAX_LINK)):
        if len(part.get(key) or "") > most:
            return f"has a {key} of more than {most} characters"
    return ""


def parts_of(holder: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a Message or an Artifact that anyone may have made, without those that are malformed.

    A part of none of the known kinds may be of a kind that a newer A2A knows: it stays, for its reader to judge.
    """
    parts = holder.get("parts")
    if not isinstance(parts, list):
        return []
    return [part for part in parts if not part_fault(part) or _is_newer(part)]


def _is_newer(part: object) -> bool:
    known = messages.CONTENTS
    return isinstance(part, Mapping) and bool(part) and not any(kind in part for kind in known)


def said(holder: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> shapes.Said:
    """The fields `parts` and, where a part has a URL, `files` of a Message or an Artifact in the API's JSON.

    Args:
        sizes: bytes of the blobs that are known, by hash.
    """
    parts = parts_of(holder)
    shown: shapes.Said = {"parts": parts}
    if files := files_of({"parts": parts}):
        known = sizes or {}
        shown["files"] = [
            {
                "url": file["url"],
                "mediaType": file["mediaType"],
                "filename": file["filename"],
                "size": known.get(file["url"].removeprefix(PREFIX)),
            }
            for file in files
        ]
    return shown


def subject_of(message: Mapping[str, Any]) -> str:
    """The subject of a Message, cut to one line; "" for none."""
    metadata = message.get("metadata")
    subject = metadata.get(SUBJECT) if isinstance(metadata, Mapping) else None
    return one_line(subject, MAX_LABEL) if isinstance(subject, str) else ""
