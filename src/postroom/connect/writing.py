"""What `connect` has written for a client, with a receipt by which `disconnect` takes it back.

The receipt is on disk before a file is changed: it holds the bytes that were there before, and the hash of those that
came. A file that only we have changed gets its bytes back; from another one only what is ours is cut.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from postroom.client.locate import read_private
from postroom.connect import files, places
from postroom.connect.edits import Edit, OwnFile
from postroom.errors import Conflict, EnvironmentFault, InvalidInput, PostroomError, StateUnwritable
from postroom.identity import privatefile


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a client, and what is ours in it."""

    path: Path
    edit: Edit


@dataclass(frozen=True, slots=True)
class Written:
    """One file of a receipt.

    Attributes:
        before: the file before ours came in, None for none.
        after: SHA-256 of what was written, hex.
    """

    before: bytes | None
    after: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is written for one client in one home.

    Attributes:
        folders: those that were made for it, the outermost first.
    """

    client: str
    home: Path
    folders: tuple[Path, ...] = ()
    written: Mapping[Path, Written] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its file."""
        name = hashlib.sha256(bytes(self.home)).hexdigest()[:12]
        return places.folder() / places.RECEIPTS / f"{self.client}-{name}.json"

    def dump(self) -> bytes:
        """The content of its file."""
        written = {
            str(path): {
                "before": None if one.before is None else base64.b64encode(one.before).decode(),
                "after": one.after,
            }
            for path, one in self.written.items()
        }
        return json.dumps(
            {
                "client": self.client,
                "home": str(self.home),
                "folders": [str(folder) for folder in self.folders],
                "written": written,
            },
            indent=1,
        ).encode()


@dataclass(frozen=True, slots=True)
class Step:
    """A file that is to be changed: what it is now and will be, None for no file."""

    path: Path
    old: bytes | None
    new: bytes | None


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of one file when ours was taken out.

    Attributes:
        said: in words.
        named: what went with it though others had put it there.
        left: it still has what is ours, and why.
    """

    path: Path
    said: str
    named: tuple[str, ...] = ()
    left: str = ""


def receipts(client: str = "") -> list[Receipt]:
    """The receipts that there are, of one client or of all.

    Raises:
        EnvironmentFault: one is not private to this user, or not in the form that `connect` writes.
    """
    found = sorted((places.folder() / places.RECEIPTS).glob(f"{client or '*'}-*.json"))
    return [receipt for path in found if (receipt := _read(path)) is not None]


def receipt_of(client: str, home: Path) -> Receipt:
    """The receipt of a client in a home; an empty one for none."""
    empty = Receipt(client, home)
    return _read(empty.path) or empty


def homes(client: str, usual: Path) -> list[Receipt]:
    """The receipts of every home that is known, the usual one first, which may have an empty one."""
    first = receipt_of(client, usual)
    return [first, *(each for each in receipts(client) if each.home != usual)]


def plan(parts: Iterable[Part], receipt: Receipt) -> list[Step]:
    """What writing would change; writes nothing.

    Raises:
        InvalidInput, Conflict: a file cannot be changed safely; the error names it.
        EnvironmentFault: one cannot be read, or belongs to another user.
    """
    files.check_folder(receipt.home)
    steps = []
    for part in parts:
        old = files.content_of(part.path)
        if not _well(part, receipt, old):
            steps.append(Step(part.path, old, _with(part, receipt, old)[1]))
    return [step for step in steps if step.new != step.old]


def write(parts: Sequence[Part], receipt: Receipt) -> Receipt:
    """Write what is ours into the files; all of them, or none.

    Raises:
        InvalidInput, Conflict, EnvironmentFault: as `plan`.
        StateUnwritable: a file cannot be written.
    """
    files.check_folder(receipt.home)
    with _alone():
        return _written(parts, receipt_of(receipt.client, receipt.home))


def _written(parts: Sequence[Part], receipt: Receipt) -> Receipt:
    done: list[Step] = []
    first = receipt
    try:
        for part in parts:
            made = files.make_folders(part.path.parent)
            receipt = replace(receipt, folders=(*receipt.folders, *made))
            receipt = _put(part, receipt, done)
    except PostroomError:
        for step in reversed(done):
            files.change(step.path, lambda now, step=step: step.old if now == step.new else now)
        files.remove_empty([each for each in receipt.folders if each not in first.folders])
        _keep(first)
        raise
    return receipt


def undo(parts: Sequence[Part], receipt: Receipt) -> list[Undone]:
    """Take out what was written, as far as nobody has changed it; the receipt stays for what could not be.

    Args:
        parts: as this version would write them.
        receipt: for which client and home; what it says is read again.

    Raises:
        StateUnwritable: a file cannot be written.
    """
    with _alone():
        return _undone(parts, receipt_of(receipt.client, receipt.home))


def _undone(parts: Sequence[Part], receipt: Receipt) -> list[Undone]:
    edits = {part.path: part.edit for part in parts}
    found = []
    for path in {**receipt.written, **edits}:
        written = receipt.written.get(path)
        one = _taken_out(path, edits.get(path, OwnFile(b"")), written)
        if one is not None:
            found.append(one)
    left = {each.path for each in found if each.left}
    rest = {path: one for path, one in receipt.written.items() if path in left}
    folders = tuple(files.remove_empty(receipt.folders))
    # A folder that was made here, and that others have put something into, is theirs.
    _keep(replace(receipt, written=rest, folders=folders if rest else ()))
    return found


def _put(part: Part, receipt: Receipt, done: list[Step]) -> Receipt:
    """Write one file, its receipt first."""

    def make(now: bytes | None) -> bytes | None:
        nonlocal receipt
        if _well(part, receipt_before, now):
            receipt = receipt_before
            return now
        before, new = _with(part, receipt_before, now)
        written = Written(before, hashlib.sha256(new).hexdigest())
        receipt = replace(receipt_before, written={**receipt_before.written, part.path: written})
        _keep(receipt)
        done[-1:] = [Step(part.path, now, new)]
        return new

    receipt_before = receipt
    done.append(Step(part.path, None, None))
    files.change(part.path, make)
    return receipt


def _well(part: Part, receipt: Receipt, now: bytes | None) -> bool:
    """Whether the file has what is ours by this receipt, whatever else others have made of it since."""
    if now is None or part.path not in receipt.written:
        return False
    with _named(part.path):
        return part.edit.there(now)


def _with(part: Part, receipt: Receipt, now: bytes | None) -> tuple[bytes | None, bytes]:
    """The file without what is ours, and with it.

    Raises:
        InvalidInput, Conflict: as `Edit.put`, with the file's name.
    """
    written = receipt.written.get(part.path)
    with _named(part.path):
        before = now
        if now is not None and (written is not None or part.edit.marked(now)):
            before = _without(part.edit, written, now)[0]
        return before, part.edit.put(before)


def _without(
    edit: Edit, written: Written | None, now: bytes
) -> tuple[bytes | None, tuple[str, ...]]:
    """The file without what is ours, and what of others goes with it."""
    if written is not None:
        if hashlib.sha256(now).hexdigest() == written.after:
            return written.before, ()
        if now == written.before:
            return now, ()
    cut = edit.cut(now, written.before if written else None)
    return cut.content, cut.named


def _taken_out(path: Path, edit: Edit, written: Written | None) -> Undone | None:
    """Take ours out of one file; None where there is nothing of ours."""
    named: tuple[str, ...] = ()

    def make(now: bytes | None) -> bytes | None:
        nonlocal named
        named = ()
        if now is None or (written is None and not edit.marked(now)):
            return now
        left, named = _without(edit, written, now)
        return left

    try:
        with _named(path):
            old = files.change(path, make)
    except (InvalidInput, Conflict) as error:
        return Undone(path, "stays", left=error.message)
    if old is None:
        return None if written is None else Undone(path, "is gone already")
    new = files.content_of(path)
    if new == old:
        return None if written is None else Undone(path, "has nothing of Postroom already")
    if new is None:
        return Undone(path, "removed", named)
    if written is not None and new == written.before:
        return Undone(path, "as it was before", named)
    return Undone(path, "only what Postroom wrote is cut; what others changed since stays", named)


def _read(path: Path) -> Receipt | None:
    content = read_private(path, limit=4 * files.MAX_BYTES)
    if content is None:
        return None
    try:
        said = json.loads(content)
        written = {
            Path(name): Written(
                None if one["before"] is None else base64.b64decode(one["before"], validate=True),
                str(one["after"]),
            )
            for name, one in said["written"].items()
        }
        folders = tuple(Path(folder) for folder in said["folders"])
        return Receipt(str(said["client"]), Path(said["home"]), folders, written)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(f"{path} is not what `postroom connect` writes") from error


def _keep(receipt: Receipt) -> None:
    """Write the receipt; remove it where it says nothing."""
    path = receipt.path
    try:
        if receipt.written or receipt.folders:
            privatefile.prepare(path.parent)
            privatefile.replace(path, receipt.dump())
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def _alone() -> Generator[None]:
    """Keep others of this user from writing meanwhile: a receipt that one has read would be another's by then."""
    path = places.folder() / "receipts.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _named(path: Path) -> Generator[None]:
    """Have an error name the file."""
    try:
        yield
    except (InvalidInput, Conflict) as error:
        remedy = error.remedy or "add the lines by hand: postroom connect --print shows them"
        raise type(error)(f"{path} stays as it is: {error.message}", remedy=remedy) from error
