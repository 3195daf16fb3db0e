"""The file of a backup: a tar of files with a list of their hashes at its end.

    backup.json       what it is of
    …                 files, folders, and symbolic links of workspaces
    manifest.json     SHA-256 and size of every file before it

A reader takes nothing on trust: `check` reads the whole file before anything is written, and a name that leads out of
the folder, twice to one place, or through a link is refused. The keys in it are sealed with a passphrase: scrypt makes
the key, AES-256-GCM encrypts.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import secrets
import stat
import tarfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from postroom.disk import sync
from postroom.errors import InvalidInput, StateUnwritable

ABOUT = "backup.json"
MANIFEST = "manifest.json"
LEVEL = 1
BLOCK = 256 * 1024
MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of a document that is read as a whole."""

SHORTEST = 8
"""Characters of a passphrase: what is shorter is found by trying, however slow each try is."""

_COST = {"n": 2**16, "r": 8, "p": 1}
"""64 MiB and a fifth of a second for each try."""

_MOST = 2**20
"""The highest cost that is taken from a file, 1 GiB: a made-up one must not fill the memory."""


class Writer:
    """Writes the entries of a backup, in their order."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._files: dict[str, dict[str, Any]] = {}
        self.skipped: list[str] = []
        """Files that could not be read."""

    def document(self, name: str, content: bytes) -> None:
        """Add a file with this content."""
        about = _info(name, 0o600)
        about.size = len(content)
        self._tar.addfile(about, io.BytesIO(content))
        self._files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}

    def file(self, name: str, path: Path, size: int | None = None) -> None:
        """Add the first `size` bytes of the file at `path`, or all that it has now.

        A file that is shortened while it is read is filled up with zeros, as other archivers do.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            self.skipped.append(name)
            return
        with open(descriptor, "rb") as file:  # noqa: PTH123
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                self.skipped.append(name)
                return
            about = _info(name, state.st_mode & 0o700)
            about.size = state.st_size if size is None else size
            about.mtime = int(state.st_mtime)
            hashed = _Hashed(file, about.size)
            self._tar.addfile(about, hashed)
            self._files[name] = {"sha256": hashed.hex(), "size": about.size}

    def folder(self, name: str, mode: int = 0o700) -> None:
        """Add an empty folder."""
        about = _info(name, mode & 0o700)
        about.type = tarfile.DIRTYPE
        self._tar.addfile(about)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        about = _info(name, 0o700)
        about.type, about.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(about)

    def tree(
        self, name: str, root: Path, leave_out: Callable[[Path], bool] = lambda _: False
    ) -> None:
        """Add what is below the folder `root`; sockets and the like are left out."""
        self.folder(name)
        with suppress(OSError):
            for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
                inner, path = f"{name}/{entry.name}", Path(entry.path)
                if leave_out(path):
                    continue
                if entry.is_symlink():
                    with suppress(OSError):
                        self.link(inner, os.readlink(path))  # noqa: PTH115 (as it stands)
                elif entry.is_dir():
                    self.tree(inner, path, leave_out)
                elif entry.is_file():
                    self.file(inner, path)

    def finish(self) -> None:
        """Add the list of hashes."""
        self.document(MANIFEST, json.dumps({"files": self._files}).encode())


def _info(name: str, mode: int) -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.mode = mode
    return about


class _Hashed:
    """A file of which exactly `size` bytes are read and hashed."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size
        self._seen = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        content = self._file.read(wanted)
        content += bytes(wanted - len(content))
        self._left -= wanted
        self._seen.update(content)
        return content

    def hex(self) -> str:
        return self._seen.hexdigest()


@contextmanager
def writing(path: Path) -> Generator[Writer, None, None]:
    """Write a backup to `path`: whole and on disk, or not at all.

    Raises:
        StateUnwritable: it cannot be written there.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123
            with (
                gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed,
                tarfile.open(mode="w|", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
            ):
                writer = Writer(tar)
                yield writer
                writer.finish()
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync(path.parent)
    except OSError as error:
        raise StateUnwritable(
            f"cannot write {error.filename or path}: {error.strerror}", remedy="name another file"
        ) from error
    finally:
        new.unlink(missing_ok=True)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Checked:
    """What a whole and undamaged backup says about itself.

    Attributes:
        about, raw: `backup.json`, and its bytes.
        documents: the contents of the files that were asked for.
        size: bytes of all files.
    """

    about: dict[str, Any]
    raw: bytes = b""
    documents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


def check(path: Path, documents: tuple[str, ...] = ()) -> Checked:
    """Read the backup at `path` to its end and check every name and byte of it; nothing is written.

    Raises:
        InvalidInput: it is no backup, was changed, or has a name that leads elsewhere.
    """
    found = Checked({})
    kinds: dict[str, bytes] = {}
    hashes: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    with _reading(path) as tar:
        for member in tar:
            if manifest is not None:
                raise InvalidInput(f"{path} goes on behind its end")
            _check_name(member, kinds)
            if not member.isreg():
                continue
            file = tar.extractfile(member)
            if file is None:
                raise InvalidInput(f"{path} is damaged at {member.name}")
            keep = member.name in {ABOUT, MANIFEST, *documents}
            if keep and member.size > MAX_DOCUMENT:
                raise InvalidInput(f"{member.name} in {path} is too large")
            seen, content = _read(file, keep=keep)
            if member.name == MANIFEST:
                manifest = json.loads(content)
                continue
            hashes[member.name] = {"sha256": seen, "size": member.size}
            found.size += member.size
            if member.name == ABOUT:
                found.about, found.raw = json.loads(content), content
            elif keep:
                found.documents[member.name] = content
    if manifest is None or manifest.get("files") != hashes:
        raise InvalidInput(f"{path} is damaged: its checksums are wrong or missing")
    if found.about.get("postroom") != "backup" or next(iter(kinds)) != ABOUT:
        raise InvalidInput(f"{path} is no backup of a post room")
    return found


def extract(path: Path, folder: Path) -> None:
    """Write the entries of a checked backup into the empty `folder`: 0700 and 0600, links last."""
    links: list[tuple[Path, str]] = []
    kinds: dict[str, bytes] = {}
    with _reading(path) as tar:
        for member in tar:
            _check_name(member, kinds)
            place = folder / member.name
            if member.name in {ABOUT, MANIFEST}:
                continue
            if member.isdir():
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif member.issym():
                links.append((place, member.linkname))
            else:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = tar.extractfile(member)
                if file is not None:
                    _write(place, file, member.mode & 0o700)
    for place, target in links:
        place.symlink_to(target)


def _write(place: Path, file: Any, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(place, flags, 0o600), "wb") as into:  # noqa: PTH123
        while block := file.read(BLOCK):
            into.write(block)
        into.flush()
        os.fsync(into.fileno())
    if mode:
        place.chmod(mode)


def _check_name(member: tarfile.TarInfo, kinds: dict[str, bytes]) -> None:
    """Refuse a name that does not stay in its folder, and a second entry under one name."""
    name = PurePosixPath(member.name)
    parts = member.name.split("/")
    if name.is_absolute() or not member.name or any(part in {"", ".", ".."} for part in parts):
        raise InvalidInput(f"the backup has an entry {member.name!r}, which leads elsewhere")
    if "\0" in member.name or "\\" in parts[0]:
        raise InvalidInput(f"the backup has an entry {member.name!r}")
    if not (member.isreg() or member.isdir() or member.issym()):
        raise InvalidInput(f"the backup has an entry {member.name!r} that is no file and no folder")
    if member.issym() and "workspace" not in parts[:-1]:
        raise InvalidInput(f"the backup has a link {member.name!r} where none belongs")
    if member.name in kinds:
        raise InvalidInput(f"the backup has two entries {member.name!r}")
    for above in name.parents:
        if kinds.get(str(above), tarfile.DIRTYPE) != tarfile.DIRTYPE:
            raise InvalidInput(f"the backup has an entry {member.name!r} below a file")
    kinds[member.name] = tarfile.DIRTYPE if member.isdir() else member.type


def _read(file: Any, *, keep: bool) -> tuple[str, bytes]:
    seen, kept = hashlib.sha256(), bytearray()
    while block := file.read(BLOCK):
        seen.update(block)
        if keep:
            kept += block
    return seen.hexdigest(), bytes(kept)


@contextmanager
def _reading(path: Path) -> Generator[tarfile.TarFile, None, None]:
    try:
        with gzip.open(path, "rb") as packed, tarfile.open(mode="r|", fileobj=packed) as tar:
            yield tar
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {error.filename or path}") from error
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        ValueError,
        KeyError,
    ) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is no backup, or is damaged: {error}") from error


def check_passphrase(passphrase: str) -> str:
    """The passphrase.

    Raises:
        InvalidInput: it is too short.
    """
    if len(passphrase) < SHORTEST:
        raise InvalidInput(f"the passphrase has fewer than {SHORTEST} characters")
    return passphrase


def seal(content: bytes, passphrase: str, about: bytes) -> bytes:
    """`content` encrypted; it can be opened beside the same `about` alone."""
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    key = _key(passphrase, salt, _COST)
    sealed = AESGCM(key).encrypt(nonce, content, about)
    return json.dumps(
        {
            "kdf": "scrypt",
            **_COST,
            "cipher": "AES-256-GCM",
            "salt": _text(salt),
            "nonce": _text(nonce),
            "sealed": _text(sealed),
        }
    ).encode()


def unseal(document: bytes, passphrase: str, about: bytes) -> bytes:
    """The content that `seal` encrypted.

    Raises:
        InvalidInput: the passphrase is wrong, or the document was changed.
    """
    try:
        said: dict[str, Any] = json.loads(document)
        cost = {name: int(said[name]) for name in _COST}
        if (
            said["kdf"] != "scrypt"
            or not 1 < cost["n"] <= _MOST
            or (cost["r"], cost["p"]) != (8, 1)
        ):
            raise InvalidInput("the keys are sealed in a way that this Postroom does not know")
        salt, nonce, sealed = (base64.b64decode(said[name]) for name in ("salt", "nonce", "sealed"))
        return AESGCM(_key(passphrase, salt, cost)).decrypt(nonce, sealed, about)
    except InvalidTag as error:
        raise InvalidInput(
            "the passphrase does not open the keys of this backup",
            remedy="give the one that it was made with",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput("the keys in this backup are damaged") from error


def _key(passphrase: str, salt: bytes, cost: dict[str, int]) -> bytes:
    return Scrypt(salt=salt, length=32, **cost).derive(passphrase.encode())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
