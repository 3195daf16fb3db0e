"""The calls about what workers change in the folders that they work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from postroom.client.calls import Calls, name_of, task_ref

if TYPE_CHECKING:
    from postroom.protocol.shapes import Applied, Difference, Synced

SLOW = 300.0
"""Seconds that git may take for a large repository."""


class WorkspaceCalls(Calls):
    """See `Calls`."""

    def diff(
        self,
        ref: str,
        paths: Sequence[str] = (),
        *,
        stat: bool = False,
        whole: bool = False,
        large: bool = False,
    ) -> Difference:
        """Bring back what a worker has done, and what it changed since it began.

        Args:
            whole: with all lines of the files.
            large: from now on also the files over the limit that the last time stayed in its folder.

        Raises:
            NotFound: it works on no folder.
        """
        chosen = {"whole": whole, "large": large}
        body = {"paths": list(paths), "stat": stat} | {
            name: True for name in chosen if chosen[name]
        }
        path = f"/v1/workers/{name_of(ref)}/diff"
        return self._post(path, body, repeatable=True, extra_time=SLOW)

    def apply(
        self, ref: str, *, merge: bool = False, undo: bool = False, tree: str = ""
    ) -> Applied:
        """Bring the branch of a worker up to date, and say how it can be merged; or merge it, or undo the last merge.

        Args:
            ref: `@NICK` or `@UID` of a worker, else the id of a task of it.
            tree: what is to be merged, as a diff or a call without `merge` has shown it; "" for what there is by now.

        Raises:
            Conflict: a person has to do something first, or look again.
        """
        body = {"merge": merge, "undo": undo} | ({"tree": tree} if tree else {})
        whose = f"workers/{name_of(ref)}" if ref.startswith("@") else f"tasks/{task_ref(ref)}"
        return self._post(f"/v1/{whose}/apply", body, extra_time=SLOW)

    def sync(
        self,
        ref: str,
        *,
        rebase: bool = False,
        resolve: bool = False,
        accept: str = "",
        timeout: float = SLOW,
    ) -> Synced:
        """Bring a worker up to the newest commit of the branch that it began from.

        Args:
            rebase: its commits are made anew on top, in place of a merge.
            resolve: give its agent a task to join what conflicts.
            accept: the commit of a merge of its agent that counts from now on; "" for none.
            timeout: seconds for the end of its turn.

        Raises:
            NotFound: it works on no folder.
            Conflict: its turn goes on, or it is in the middle of a merge of its own.
        """
        body: dict[str, Any] = {"rebase": rebase, "resolve": resolve, "timeout": timeout}
        body |= {"accept": accept} if accept else {}
        path = f"/v1/workers/{name_of(ref)}/sync"
        return self._post(path, body, extra_time=timeout + SLOW)
