"""Git on a folder that a worker may write: `inside.py ORDER ANSWER`, run in a sandbox that has no way out.

ORDER is a JSON file, ANSWER the JSON file to write. `do` of an order is one of:

    begin   make a repository in the workspace, on its branch, at `head`
    relink  write anew where the objects are that it borrows, and the branches of its person
    bring   put the commits of the workspace, and what is not committed as one more, into a bundle

What is not committed and has over `largest` bytes, if that is not 0, stays where it is, unless `let_in` names it.

The worker's own git configuration is read by nothing but `rev-parse`: all else happens in a repository that this
script makes, which finds the worker's objects and files from there. So hooks, filters, monitors and aliases of the
worker are not even known. If one ran, it would do so in a sandbox that can do less than the worker's.

The script runs by its file name, and imports the standard library and its neighbours only.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[3]))

from postroom.workers.workspaces import running
from postroom.workers.workspaces.running import (
    Broken,
    borrow,
    cut,
    empty,
    fresh,
    git,
    has_special,
    is_folder,
    take_index,
    tip_of,
    tried,
    who,
)

BROUGHT = "refs/heads/brought"
"""The one ref of a bundle."""
PERSON = "person"
"""The remote whose branches are those of the person; a link leads to them."""
MAX_NOTED = 20
"""Folders that an answer names at most."""
MAX_LARGE = 100
"""Files over the limit that an answer names at most."""
GITLINK = "160000"


def begin(order: dict[str, Any]) -> dict[str, Any]:
    """Make the worker's repository; of a copy, the state of the files becomes its first commit."""
    workspace = Path(order["workspace"])
    own = workspace / ".git"
    git("init", "-q", "--template=", f"--object-format={order['format']}", str(workspace))
    place = {"GIT_DIR": str(own), "GIT_WORK_TREE": str(workspace)}
    relink(order)
    (own / "info").mkdir(exist_ok=True)
    cut(own, order["shallow"])
    for name, value in (("user.name", order["name"]), ("user.email", order["mail"])):
        git("config", name, value, env=place)
    git("symbolic-ref", "HEAD", f"refs/heads/{order['branch']}", env=place)
    head = order["head"]
    if head:
        git("update-ref", "HEAD", head, env=place)
        git("read-tree", *(() if order["copied"] else ("-u", "--reset")), head, env=place)
    if not order["copied"]:
        running.populate(order)
        return {"base": head}
    base, _, large = _committed(order, place, head, order["message"])
    if base != head:
        git("update-ref", "HEAD", base, env=place)
        bundle(order, place, base)
    return {"base": base, "top": base, "large": large}


def relink(order: dict[str, Any]) -> dict[str, Any]:
    """Write where the borrowed objects are."""
    own = Path(order["workspace"], ".git")
    borrow(own, order["objects"])
    link = own / "refs" / "remotes" / PERSON
    if link.is_symlink() or not os.path.lexists(link):  # otherwise it has made such refs itself
        link.unlink(missing_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(order["person"])
        # A collection of garbage would else pack refs that it cannot delete, and keep what they were.
        git("config", "--file", str(own / "config"), "gc.packRefs", "false")
    if order["do"] == "relink":
        running.populate(order)
    return {}


def bring(order: dict[str, Any]) -> dict[str, Any]:
    """Put what the worker did into a bundle; it has none if there is nothing that the other side lacks."""
    workspace, notes = Path(order["workspace"]), []
    own = workspace / ".git"
    has_own = order["own"] and is_folder(own) and is_folder(own / "objects")
    if order["own"] and not has_own:
        notes.append("its .git is gone: what it had committed since is lost, its files are here")
    if has_own and has_special(own):
        has_own = False
        notes.append("its .git has pipes or devices in it: its files are here, its commits are not")
    place = fresh(order, own if has_own else None)
    tip = tip_of(own, order, notes) if has_own else order["base"]
    if not (is_folder(own) and take_index(own, place)):
        git("read-tree", *([tip] if tip else ["--empty"]), env=place)
    top, left, large = _committed(order, place, tip, order["message"])
    if top not in order["known"] and top:
        bundle(order, place, top)
    return {"tip": tip, "top": top, "left": left, "large": large, "notes": notes}


def _committed(
    order: dict[str, Any], place: dict[str, str], parent: str, message: str
) -> tuple[str, list[str], dict[str, int]]:
    """A commit of the files as they are on top of `parent`, or `parent` if nothing differs; and what it lacks."""
    before = git("rev-parse", f"{parent}^{{tree}}", env=place) if parent else empty(place)
    large = Large(order, place, before)
    stands, notes = running.moved(order)
    tree = snapshot(place, parent, stands, large)
    left = [name for name in _left_out(place, before, tree) if name not in large.found]
    left = [*notes, *left]
    named = dict(list(large.found.items())[:MAX_LARGE])
    if tree == before:
        return parent, left[:MAX_NOTED], named
    parents = ("-p", parent) if parent else ()
    words = ("commit-tree", tree, *parents, "-m", message)
    return git(*words, env=place | who(order)), left[:MAX_NOTED], named


class Large:
    """The files that are too large to be committed unasked.

    What its last commit has in that size is no news; what it has put into its index by itself counts like a file.

    Attributes:
        found: by name, their sizes in bytes.
    """

    def __init__(self, order: dict[str, Any], place: dict[str, str], before: str) -> None:
        self.found: dict[str, int] = {}
        self._most: int = order["largest"]
        self._let_in = frozenset(order["let_in"])
        self._place = place
        self._before = before

    def files(self) -> list[str]:
        """Those that the index has not, or has otherwise; none is read, since one may be as large as the disk."""
        if not self._most:
            return []
        words = ("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        names = set(git(*words, env=self._place).split("\0")) - self._let_in - {""}
        sizes = {name: _size(Path(self._place["GIT_WORK_TREE"], name)) for name in names}
        over = {name: size for name, size in sizes.items() if size > self._most}
        before = self._sizes([f"{self._before}:{name}" for name in over])
        over = {
            name: size
            for name, size in over.items()
            if before[f"{self._before}:{name}"] <= self._most
        }
        self.found |= over
        return list(over)

    def taken_out(self, tree: str) -> str:
        """The tree without what is too large in it; the index is so, too."""
        if not self._most or tree == self._before:
            return tree
        words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", self._before, tree)
        fields = git(*words, env=self._place).split("\0")
        changes = [
            (entry.split(" "), path) for entry, path in zip(fields[::2], fields[1::2], strict=False)
        ]
        sizes = self._sizes([name for entry, _ in changes for name in entry[2:4]])
        back: list[str] = []
        for (mode, _, old, new, _), path in changes:
            over = sizes[new] > self._most >= sizes[old]
            if over and path not in self._let_in:
                self.found[path] = sizes[new]
                back.append(f"{mode.removeprefix(':')} {old}\t{path}")
        if not back:
            return tree
        git("update-index", "-z", "--index-info", env=self._place, stdin="\0".join([*back, ""]))
        return git("write-tree", env=self._place)

    def _sizes(self, names: list[str]) -> dict[str, int]:
        """The sizes of blobs by their names; 0 for what is none."""
        if not names:
            return {}
        asked = "".join(f"{'' if chr(10) in name else name}\n" for name in names)
        words = ("cat-file", "--batch-check=%(objecttype) %(objectsize)")
        said = git(*words, env=self._place, stdin=asked).split("\n")
        found = (line.removeprefix("blob ") for line in said)
        return {
            name: int(size) if size.isdecimal() else 0
            for name, size in zip(names, found, strict=True)
        }


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def snapshot(
    place: dict[str, str], parent: str, stands: Mapping[str, str], large: Large | None = None
) -> str:
    """The tree of the files as they are, without those that are too large; the index has the same then.

    Args:
        stands: see `running.moved`.
    """
    try:
        return _written(place, parent, stands, large)
    except Broken:
        # An index that git does not take, such as one in parts: from the parent's files instead.
        Path(place["GIT_DIR"], "index").unlink(missing_ok=True)
        git("read-tree", *([parent] if parent else ["--empty"]), env=place)
        return _written(place, parent, stands, large)


def _written(
    place: dict[str, str], parent: str, stands: Mapping[str, str], large: Large | None
) -> str:
    """The tree of the files as they are, but for those that are ignored."""
    entries = git("ls-files", "-s", "-z", env=place).split("\0")
    links = [entry.partition("\t")[2] for entry in entries if entry.startswith(GITLINK)]
    # `git add` runs git in each submodule, by the configuration that is there. So where they stand is read alone.
    out = [*links, *(large.files() if large else ())]
    paths = "\0".join([".", *(f":(exclude,literal){name}" for name in out)])
    words = ("add", "-A", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul")
    try:
        git("-c", "advice.addEmbeddedRepo=false", *words, env=place, stdin=paths)
    except Broken:
        if not Path(place["GIT_DIR"], "index").exists():
            raise
    free = [name for name in links if name not in stands]
    if free:
        git("update-index", "--remove", "-z", "--stdin", env=place, stdin="\0".join([*free, ""]))
    for name in set(links) & stands.keys():
        before = tried("rev-parse", "--verify", "-q", f"{parent}:{name}", env=place).stdout.strip()
        if commit := stands[name] or before:
            git("update-index", "--cacheinfo", f"{GITLINK},{commit},{name}", env=place)
    tree = git("write-tree", env=place)
    return large.taken_out(tree) if large else tree


def _left_out(place: dict[str, str], before: str, tree: str) -> list[str]:
    """What is not in the commit: repositories inside, and files that could not be read."""
    changed = git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, tree, env=place)
    fields = changed.split("\0")
    links = [
        path
        for entry, path in zip(fields[::2], fields[1::2], strict=False)
        if entry.split(" ")[1:2] == [GITLINK] and entry.split(" ")[0] != f":{GITLINK}"
    ]
    others = git("ls-files", "-z", "--others", "--exclude-standard", env=place).split("\0")
    return [name for name in (*links, *others) if name]


def bundle(order: dict[str, Any], place: dict[str, str], top: str) -> None:
    """Put a commit into a bundle, with all before it that `known` has not."""
    git("update-ref", BROUGHT, top, env=place)
    known = [name for name in order["known"] if _has(name, place)]
    excluded = "".join(f"^{name}\n" for name in known)
    target = str(Path(order["out"], "bundle"))
    git("bundle", "create", "-q", target, BROUGHT, "--stdin", env=place, stdin=excluded)
    git("update-ref", "-d", BROUGHT, env=place)


def _has(name: str, place: dict[str, str]) -> bool:
    try:
        git("cat-file", "-e", f"{name}^{{commit}}", env=place)
    except Broken:
        return False
    return True


ORDERS = {"begin": begin, "relink": relink, "bring": bring}


def main(
    words: list[str], orders: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
) -> None:
    """Read the order, do it, write the answer."""
    order = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    try:
        answer = orders[order["do"]](order)
    except (Broken, OSError) as error:
        answer = {"error": str(error)}
    Path(words[1]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:], ORDERS)
