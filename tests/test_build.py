"""The commit of a checkout, as git itself says it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from postroom.build import commit, named, of_checkout, version

ROOT = Path(__file__).parents[1]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


@pytest.mark.requirement("cli-status-attention")
def test_the_commit_is_found_however_git_keeps_it(tmp_path: Path):
    assert of_checkout(tmp_path) == ""
    repository, other = tmp_path / "repository", tmp_path / "other"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "feature/one")
    assert of_checkout(repository) == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    first = git(repository, "rev-parse", "HEAD")
    assert of_checkout(repository) == first
    git(repository, "pack-refs", "--all")
    assert of_checkout(repository) == first
    git(repository, "worktree", "add", "-q", "-b", "two", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    assert of_checkout(other) == git(other, "rev-parse", "HEAD") != first
    git(repository, "checkout", "-q", "--detach")
    assert of_checkout(repository) == first


def test_what_is_no_commit_is_not_shown(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    for text in ("\x1b[31mno", "ref: refs/heads/none", "ref: ../../../etc/hostname", "a" * 39):
        (tmp_path / ".git" / "HEAD").write_text(text)
        assert of_checkout(tmp_path) == ""


def test_this_checkout_says_its_commit():
    if not (ROOT / ".git").exists():
        pytest.skip("there is no git checkout here")
    assert commit() == git(ROOT, "rev-parse", "HEAD")
    assert version() == f"0.1.0 ({commit()[:10]})"
    assert named("0.1.0", "") == "0.1.0"
