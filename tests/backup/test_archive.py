"""A backup that was changed, or was made to write elsewhere, is refused before anything is written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from postroom.backup import archive
from postroom.errors import InvalidInput

pytestmark = pytest.mark.requirement("backup-restores-all")

ABOUT = json.dumps({"postroom": "backup"}).encode()


def made(path: Path, *more: tuple[str, bytes, str]) -> Path:
    """A backup with valid checksums and these entries: name, kind, and content or target."""
    files = {}
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in ((archive.ABOUT, tarfile.REGTYPE, ABOUT.decode()), *more):
            info = tarfile.TarInfo(name)
            info.type = kind
            data = content.encode() if kind == tarfile.REGTYPE else b""
            info.size, info.linkname = len(data), "" if data else content
            files |= (
                {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}
                if (kind == tarfile.REGTYPE)
                else {}
            )
            tar.addfile(info, io.BytesIO(data))
        last = json.dumps({"files": files}).encode()
        info = tarfile.TarInfo(archive.MANIFEST)
        info.size = len(last)
        tar.addfile(info, io.BytesIO(last))
    return path


def test_a_good_one_is_taken(tmp_path: Path):
    good = made(tmp_path / "b", ("workers/a/workspace/out", tarfile.SYMTYPE, "/etc"))
    assert archive.check(good).about == {"postroom": "backup"}


@pytest.mark.parametrize(
    "entries",
    [
        [("../outside", tarfile.REGTYPE, "x")],
        [("/outside", tarfile.REGTYPE, "x")],
        [("a/../../outside", tarfile.REGTYPE, "x")],
        [("keys", tarfile.SYMTYPE, "/etc")],
        [("workers/a/workspace/l", tarfile.LNKTYPE, "/etc/passwd")],
        [("workers/a/workspace/p", tarfile.FIFOTYPE, "")],
        [("w/workspace/l", tarfile.SYMTYPE, "/tmp"), ("w/workspace/l/x", tarfile.REGTYPE, "x")],
        [("a", tarfile.REGTYPE, "x"), ("a", tarfile.REGTYPE, "y")],
    ],
)
def test_an_entry_that_leads_elsewhere_is_refused(
    tmp_path: Path, entries: list[tuple[str, bytes, str]]
):
    with pytest.raises(InvalidInput):
        archive.check(made(tmp_path / "b", *entries))


def test_a_changed_or_cut_one_is_refused(tmp_path: Path):
    good = gzip.decompress(made(tmp_path / "b", ("a", tarfile.REGTYPE, "content")).read_bytes())
    for bad in (good.replace(b"content", b"c0ntent"), good[:1500], good[:600]):
        (tmp_path / "bad").write_bytes(gzip.compress(bad))
        with pytest.raises(InvalidInput):
            archive.check(tmp_path / "bad")
