"""What a part of a message is, and the name that its content gets: agents write both."""

from __future__ import annotations

import base64

import pytest

from postroom.errors import InvalidInput
from postroom.protocol.parts import (
    MAX_FILE_NAME,
    bytes_of,
    file_name,
    kind_of,
    media_type_of,
    name_in,
    size_in,
)

RAW = base64.b64encode(b"12345").decode()


@pytest.mark.parametrize(
    "part, kind, media_type, size",
    [
        ({"text": "é"}, "text", "text/plain", 2),
        ({"text": "# a", "mediaType": "Text/Markdown; charset=utf-8"}, "text", "text/markdown", 3),
        ({"data": None}, "data", "application/json", 4),
        (
            {"data": {"a": 1}, "mediaType": "application/geo+json"},
            "data",
            "application/geo+json",
            8,
        ),
        ({"url": "blob:sha256:0"}, "file", "application/octet-stream", None),
        ({"raw": RAW, "mediaType": "image/png"}, "file", "image/png", 5),
        ({"raw": "-_8", "data": None}, "file", "application/octet-stream", 2),
        ({"url": "x", "data": None}, "file", "application/octet-stream", None),
        ({"raw": ""}, "file", "application/octet-stream", 0),
        ({"hologram": 1}, "", "application/octet-stream", None),
        ({"hologram": 1, "mediaType": "model/x"}, "", "model/x", None),
        ({"text": 7}, "", "application/octet-stream", None),
        ([], "", "application/octet-stream", None),
        (None, "", "application/octet-stream", None),
    ],
)
def test_each_part_has_a_kind_a_media_type_and_a_size(
    part: object, kind: str, media_type: str, size: int | None
):
    assert (kind_of(part), media_type_of(part), size_in(part)) == (kind, media_type, size)


@pytest.mark.parametrize(
    "stated, name",
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("/etc/passwd", "_etc_passwd"),
        ("..\\up", "_up"),
        ("..", ""),
        ("", ""),
        (" . ", ""),
        ("-rf", "rf"),
        (".bashrc", "bashrc"),
        ("two\nlines.txt", "two lines.txt"),
        ("a\x1b]0;title\x07b\x1b[31m.txt", "ab.txt"),
        ("gpj\u202e.exe", "gpj.exe"),
        ("\ud800.txt", "txt"),
        ("naïve 日本.md", "naïve 日本.md"),
    ],
)
def test_a_name_stays_in_its_folder_and_acts_on_nothing(stated: str, name: str):
    assert file_name(stated) == name
    assert name_in({"url": "x", "filename": stated}) == name


@pytest.mark.parametrize(
    "stated", ["x" * 300 + ".pdf", "日" * 300 + ".tar", "y" * 300, "a." + "z" * 300]
)
def test_a_long_name_is_cut_before_its_end(stated: str):
    name = file_name(stated)
    assert MAX_FILE_NAME - 4 < len(name.encode()) <= MAX_FILE_NAME
    if "." in stated[-4:]:
        assert name.endswith(stated[-4:])


@pytest.mark.parametrize("raw", ["+/8=", "-_8=", "+/8", "-_8"])
def test_the_bytes_of_a_part_are_read_in_both_alphabets(raw: str):
    assert bytes_of(raw) == b"\xfb\xff"


def test_what_is_not_base64_is_refused():
    for raw in ("a", "ä", "a b=", "+/8=x"):
        with pytest.raises(InvalidInput):
            bytes_of(raw)


def test_a_part_without_a_name_has_none():
    assert name_in({"url": "x"}) == name_in({"filename": 3}) == name_in(None) == ""
