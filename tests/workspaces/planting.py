"""Settings of git that name a command, and the places where somebody who can write a folder plants them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.workspaces.bench import QUIET, git, repository

COMMANDS = {
    "core.fsmonitor": "{evil}",
    "core.hooksPath": "{hooks}",
    "core.sshCommand": "{evil}",
    "core.gitProxy": "{evil}",
    "core.pager": "{evil}",
    "core.editor": "{evil}",
    "core.askPass": "{evil}",
    "core.alternateRefsCommand": "{evil}",
    "core.attributesFile": "{attributes}",
    "core.excludesFile": "{attributes}",
    "alias.status": "!{evil}",
    "alias.rev-parse": "!{evil}",
    "alias.update-ref": "!{evil}",
    "browser.x.cmd": "{evil}",
    "commit.gpgSign": "true",
    "commit.template": "{attributes}",
    "completion.commands": "{evil}",
    "credential.helper": "!{evil}",
    "credential.https://example.org.helper": "!{evil}",
    "diff.external": "{evil}",
    "diff.evil.command": "{evil}",
    "diff.evil.textconv": "{evil}",
    "diff.a=b.textconv": "{evil}",
    "diff.tool": "x",
    "diff.guitool": "x",
    "difftool.x.cmd": "{evil}",
    "filter.evil.clean": "{evil}",
    "filter.evil.smudge": "{evil}",
    "filter.evil.process": "{evil}",
    "filter.evil.required": "true",
    "filter.a=b.clean": "{evil}",
    "filter.a=b.smudge": "{evil}",
    "filter.a=b.process": "{evil}",
    "filter.lfs.clean": "{evil}",
    "filter.lfs.smudge": "{evil}",
    "filter.lfs.process": "{evil}",
    "gpg.program": "{evil}",
    "gpg.format": "ssh",
    "gpg.ssh.program": "{evil}",
    "gpg.ssh.defaultKeyCommand": "{evil}",
    "gpg.x509.program": "{evil}",
    "guitool.x.cmd": "{evil}",
    "help.browser": "x",
    "include.path": "{more}",
    "includeIf.gitdir:/.path": "{more}",
    "init.templateDir": "{hooks}",
    "instaweb.browser": "{evil}",
    "interactive.diffFilter": "{evil}",
    "log.showSignature": "true",
    "man.x.cmd": "{evil}",
    "merge.evil.driver": "{evil} %A",
    "merge.a=b.driver": "{evil} %A",
    "merge.default": "evil",
    "merge.tool": "x",
    "merge.guitool": "x",
    "merge.verifySignatures": "true",
    "mergetool.x.cmd": "{evil}",
    "pager.diff": "{evil}",
    "pager.status": "{evil}",
    "pager.config": "{evil}",
    "protocol.allow": "always",
    "protocol.ext.allow": "always",
    "receive.procReceiveRefs": "refs",
    "remote.origin.url": "ext::{evil}",
    "remote.origin.fetch": "+refs/*:refs/*",
    "remote.origin.uploadpack": "{evil}",
    "remote.origin.receivepack": "{evil}",
    "remote.origin.vcs": "ext",
    "remote.origin.proxy": "{evil}",
    "safe.directory": "*",
    "safe.bareRepository": "all",
    "sendemail.ccCmd": "{evil}",
    "sendemail.toCmd": "{evil}",
    "sendemail.headerCmd": "{evil}",
    "sendemail.smtpServer": "{evil}",
    "sequence.editor": "{evil}",
    "submodule.x.update": "!{evil}",
    "submodule.x.url": "ext::{evil}",
    "submodule.recurse": "true",
    "status.submoduleSummary": "true",
    "diff.submodule": "log",
    "trailer.x.command": "{evil}",
    "trailer.x.cmd": "{evil}",
    "uploadpack.packObjectsHook": "{evil}",
    "uploadpack.hideRefs": "refs",
    "url.ext::{evil} .insteadOf": "/",
    "url.ext::{evil} .pushInsteadOf": "/",
    "core.worktree": "{folder}",
    "http.proxy": "ext::{evil}",
    "web.browser": "x",
    "gitcvs.dbDriver": "{evil}",
    "hook.x.command": "{evil}",
    "hook.x.event": "reference-transaction",
    "fetch.bundleURI": "ext::{evil}",
    "transfer.bundleURI": "true",
    "extensions.worktreeConfig": "true",
    "gc.auto": "1",
    "maintenance.auto": "true",
    "gc.recentObjectsHook": "{evil}",
}
"""Those that git has had, of any version, and settings that make it use them."""

FORMS = {
    "extensions.objectFormat": "{evil}",
    "extensions.refStorage": "files://{evil}",
    "extensions.partialClone": "origin",
    "extensions.unheardOf": "{evil}",
    "remote.origin.promisor": "true",
    "core.bare": "true",
    "core.repositoryFormatVersion": "1",
    "core.worktree": "/",
    "core.sparseCheckout": "true",
    "core.splitIndex": "true",
    "core.fileMode": "{evil}",
}
"""Those that say what kind of a repository it is: it may be refused for them."""

HOOKS = """
applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit
pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update
reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman post-index-change
"""
ATTRIBUTES = "* filter=a=b diff=a=b merge=a=b ident\n*.txt filter=evil diff=evil merge=evil\n*.bin filter=lfs\n"


class Plant:
    """A program that leaves a trace, and settings that name it.

    Args:
        folder: where the files for it are put.
        canary: the file that the program writes.
    """

    def __init__(self, folder: Path, canary: Path) -> None:
        self.folder, self.canary = folder, canary
        self.evil, self.hooks = folder / "evil.sh", folder / "hooks"
        self.hooks.mkdir(parents=True)
        self.evil.write_text(f'#!/bin/sh\necho "$0 $@" >> {canary}\ncat 2>/dev/null\n')
        self.evil.chmod(0o755)
        self.fill(self.hooks)
        (folder / "attributes").write_text(ATTRIBUTES)
        (folder / "more").write_text(f"[core]\n\tfsmonitor = {self.evil}\n")

    def fill(self, hooks: Path) -> None:
        """Fill a folder of hooks."""
        hooks.mkdir(exist_ok=True)
        for name in HOOKS.split():
            (hooks / name).write_text(self.evil.read_text())
            (hooks / name).chmod(0o755)

    def write(self, config: Path, settings: Mapping[str, str], folder: Path) -> None:
        """Add settings to a file of them; `folder` is that of the files."""
        places = {
            "evil": self.evil,
            "hooks": self.hooks,
            "attributes": self.folder / "attributes",
            "more": self.folder / "more",
            "folder": folder,
        }
        lines = []
        for name, value in settings.items():
            first, middle, last = _parts(name.format(**places))
            head = f'[{first} "{middle}"]' if middle else f"[{first}]"
            lines.append(f'{head}\n\t{last} = "{value.format(**places)}"\n')
        with config.open("a") as file:
            file.write("".join(lines))

    def ran(self) -> str:
        """What ran, "" if nothing did."""
        return self.canary.read_text() if self.canary.exists() else ""


def _parts(name: str) -> tuple[str, str, str]:
    first, _, rest = name.partition(".")
    middle, _, last = rest.rpartition(".")
    return first, middle, last


Place = Callable[[Plant, Path, Mapping[str, str]], Path]
"""Plants settings in a repository at the path and returns the folder to name at the spawn."""


def _config(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    plant.write(app / ".git" / "config", settings, app)
    plant.fill(app / ".git" / "hooks")
    (app / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
    (app / ".gitattributes").write_text(ATTRIBUTES)
    (app / "a.txt").write_text("two\n")
    return app


def _worktree_config(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    git(app, "config", "extensions.worktreeConfig", "true")
    plant.write(app / ".git" / "config.worktree", settings, app)
    (app / "a.txt").write_text("two\n")
    return app


def _included(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    plant.write(app / "shared", settings, app)
    git(app, "config", "include.path", "../shared")
    return app


def _nested(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    return _config(plant, repository(app / "lib"), settings)


def _around_nested(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    _config(plant, repository(app / "lib"), settings)
    git(app, "add", "lib")
    git(app, "commit", "-qm", "a link to it")
    return app


def _bare_top(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    return _bare(plant, app.with_name("plain"), settings)


def _bare(plant: Plant, folder: Path, settings: Mapping[str, str]) -> Path:
    """A folder that is a git directory itself, with files."""
    source = repository(folder.with_name(f"{folder.name}-source"))
    (source / ".git").rename(folder)
    (folder / "a.txt").write_text("two\n")
    (folder / ".gitattributes").write_text(ATTRIBUTES)
    git(folder, "config", "--file", str(folder / "config"), "core.bare", "false")
    plant.write(folder / "config", {"core.worktree": str(folder)} | dict(settings), folder)
    plant.fill(folder / "hooks")
    return folder


def _bare_below(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    return _bare(plant, app / "lib", settings)


def _around_bare(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    _bare(plant, app / "lib", settings)
    return app


def _leads_elsewhere(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    other = _config(plant, repository(app.with_name("other")), settings)
    folder = app.with_name("folder")
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {other}/.git\n")
    return folder


def _leads_back(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    """As a submodule has it."""
    folder = app.with_name("folder")
    git(app.parent, "init", "-q", f"--separate-git-dir={app.parent}/kept", str(folder))
    plant.write(app.parent / "kept" / "config", settings, folder)
    git(folder, "config", "core.worktree", str(folder))
    plant.fill(app.parent / "kept" / "hooks")
    return folder


def _commondir(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    other = _config(plant, repository(app.with_name("other")), settings)
    (app / ".git" / "commondir").write_text(f"{other}/.git\n")
    return app


def _linked(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    git(app, "worktree", "add", "-q", "../linked")
    linked = app.with_name("linked")
    git(app, "config", "extensions.worktreeConfig", "true")
    plant.write(app / ".git" / "worktrees" / "linked" / "config.worktree", settings, linked)
    plant.write(app / ".git" / "config", settings, linked)
    return linked


def _submodule(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    lib = repository(app.with_name("lib"))
    words = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "x")
    git(app, *words)
    git(app, "commit", "-qm", "with x")
    plant.write(app / ".git" / "modules" / "x" / "config", settings, app / "x")
    plant.fill(app / ".git" / "modules" / "x" / "hooks")
    with (app / ".gitmodules").open("a") as file:
        file.write("\tignore = none\n")
    (app / ".lfsconfig").write_text(f"[lfs]\n\turl = ext::{plant.evil}\n")
    git(app, "config", "submodule.x.active", "true")
    return app


def _inside_submodule(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    _submodule(plant, app, settings)
    return app / "x"


def _borrows(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    other = _config(plant, repository(app.with_name("other")), settings)
    (app / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    return app


def _home(plant: Plant, app: Path, settings: Mapping[str, str]) -> Path:
    """Files that look like settings, where a git that knows no folder would look."""
    for name in (".gitconfig", "config", ".config/git/config"):
        path = app / name
        path.parent.mkdir(parents=True, exist_ok=True)
        plant.write(path, settings, app)
    return app


PLACES: dict[str, Place] = {
    "its configuration": _config,
    "its configuration for one worktree": _worktree_config,
    "an included file": _included,
    "a git directory below": _nested,
    "above a git directory": _around_nested,
    "a folder that is a git directory": _bare_top,
    "a folder below that is one": _bare_below,
    "above a folder that is one": _around_bare,
    "a .git that leads elsewhere": _leads_elsewhere,
    "a .git that leads back": _leads_back,
    "commondir": _commondir,
    "a linked worktree": _linked,
    "above a submodule": _submodule,
    "a submodule": _inside_submodule,
    "the repository that it borrows from": _borrows,
    "files of its own": _home,
}
REFUSED = {
    "a folder that is a git directory",
    "a folder below that is one",
    "a .git that leads elsewhere",
    "commondir",
}
"""Nobody can work there at all."""


def known_to_git() -> dict[str, str]:
    """Every setting that this git knows, with the command as its value."""
    listed = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True)
    names = [line.strip() for line in listed.stdout.splitlines() if "." in line and " " not in line]
    plain = [re.sub("[<>_]", "", name).replace("*", "x") for name in names]
    kinds = {_parts(name.lower())[::2] for name in FORMS}
    return {name: "{evil}" for name in plain if _parts(name.lower())[::2] not in kinds}


def trial(folder: Path) -> None:
    """What a person does in a folder and in one below it, by a git of theirs."""
    below = folder / "lib" if (folder / "lib").is_dir() else folder
    every = [(place, words) for place in (below, folder) for words in (["status"], ["add", "-A"])]
    for place, words in every:
        subprocess.run(
            ["git", "--no-pager", *words],
            cwd=place,
            env=os.environ | QUIET,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=20,
        )
