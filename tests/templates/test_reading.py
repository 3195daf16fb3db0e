from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.errors import InvalidInput, InvalidTemplate
from postroom.protocol.limits import MAX_FILES_BYTES
from postroom.templates.reading import Bundle, overrides, read


def write(folder: Path, text: str | bytes, name: str = "t.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def files(*names: str) -> str:
    return f"[workstation]\nfiles = {list(names)!r}\n"


def test_the_files_of_a_template_come_with_it(tmp_path: Path):
    (tmp_path / "lib").mkdir()
    write(tmp_path, b"\xff\x00", "a.bin")
    write(tmp_path, "b", "lib/b.py")
    text = files("a.bin", "lib/b.py")
    assert read(write(tmp_path, text)) == Bundle(text, {"a.bin": b"\xff\x00", "lib/b.py": b"b"})


def test_a_template_without_files_needs_none(tmp_path: Path):
    assert read(write(tmp_path, "")).files == {}


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize(
    "name", ["../secret", "/etc/hostname", "lib/../../secret", "link", "up/secret"]
)
def test_a_file_outside_the_folder_of_the_template_is_refused(tmp_path: Path, name: str):
    folder = tmp_path / "templates"
    (folder / "lib").mkdir(parents=True)
    write(tmp_path, "secret", "secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    with pytest.raises(InvalidTemplate) as caught:
        read(write(folder, files(name)))
    assert "outside" in caught.value.message


@pytest.mark.parametrize(
    "text, said",
    [
        ("a = 1\nb = = 2\n", "line 2, column 5"),
        (b"a = 1\n# \xff\n", "not UTF-8 (at line 2)"),
        ("[workstation]\nfiles = 3\n", "list of file names"),
        ("[workstation]\nfiles = [3]\n", "list of file names"),
        (files("missing"), "No such file"),
        (files("."), "not a file"),
        ('[workstation]\nfiles = ["a\\u0000b"]\n', "cannot be found"),
        (files("circle"), "cannot be found"),
    ],
)
def test_what_is_wrong_with_a_template_is_said_with_its_place(
    tmp_path: Path, text: str | bytes, said: str
):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(InvalidTemplate) as caught:
        read(write(tmp_path, text))
    assert said in caught.value.message


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidTemplate):
        read(write(tmp_path, files("pipe")))


def test_the_files_together_are_bounded(tmp_path: Path):
    write(tmp_path, b"x" * (MAX_FILES_BYTES - 1), "big")
    write(tmp_path, b"xx", "small")
    with pytest.raises(InvalidTemplate):
        read(write(tmp_path, files("big", "small")))


@pytest.mark.parametrize(
    "given, value",
    [
        ("src", "src"),
        ("a=b", "a=b"),
        ("", ""),
        ("/abs", "/abs"),
        ("./src", "{cwd}/src"),
        ("../x", "{parent}/x"),
        (".", "{cwd}"),
        (".hidden", ".hidden"),
        ("@src", "{cwd}/src"),
        ("@/abs", "/abs"),
        ("@@bob", "@bob"),
    ],
)
def test_only_what_looks_like_a_relative_path_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, value: str
):
    monkeypatch.chdir(tmp_path)
    expected = value.format(cwd=tmp_path.resolve(), parent=tmp_path.resolve().parent)
    assert overrides((f"key={given}",), "") == {"key": expected}


@pytest.mark.parametrize("setting", ["key", "=value", " =x", ""])
def test_a_setting_without_key_or_value_is_refused(setting: str):
    with pytest.raises(InvalidInput):
        overrides((setting,), "")


def test_the_last_value_of_a_key_counts():
    assert overrides(("a=1", "a=2"), "") == {"a": "2"}


def test_a_folder_here_is_meant_where_the_template_reads_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    text = '[compute]\nread_only = ["{folder}"]\n'

    assert overrides(("folder=src", "skill=src", "folder2=src"), text) == {
        "folder": str(tmp_path.resolve() / "src"),
        "skill": "src",
        "folder2": "src",
    }
    assert overrides(("folder=absent",), text) == {"folder": "absent"}
