"""Signatures of messages: an HMAC over what a message said when it was folded, by a key that no database has.

Who changes a row in the database cannot sign it again. Covered is all that stays as it was stored; state, reason and
`updated_at` are not, since receipts change them. A signature names its key, so that rows keep theirs while keys rotate:

    <id of the key>:<mark>:<base64url of HMAC-SHA256>

The mark is `first` for a row from before there were signatures: nobody knows what it said until then.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from postroom.store.session import REPLACEMENT

if TYPE_CHECKING:
    from postroom.store.messages import MessageRow

FIRST = "first"
"""Mark of what was signed at the first start of a Postroom that signs."""

ALTERED = "altered"
"""In place of the signature of a row that is not as it was stored."""


class Signer:
    """Signs and checks the messages of one organisation.

    Args:
        keys: the present key first, then former ones, which only check.
        unsigned: rows without a signature count as genuine: they are from before, and are signed soon.
    """

    def __init__(self, org: str, keys: Sequence[bytes], *, unsigned: bool = False) -> None:
        self._org = org
        self.unsigned = unsigned
        self._found: Callable[[MessageRow], None] = lambda _: None
        self._present = ""
        self._keys: Mapping[str, bytes] = {}
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Sign with the first of `keys` from now on, and check with all of them."""
        known = {key_id(key): key for key in keys}
        # The keys first: another thread may check at any time.
        self._keys = known
        self._present = key_id(keys[0])

    def tell(self, found: Callable[[MessageRow], None]) -> None:
        """Call `found`, in any thread, for each altered row that is read."""
        self._found = found

    def sign(self, row: MessageRow, mark: str = "") -> str:
        """The signature of a row."""
        present = self._present
        return f"{present}:{mark}:{self._hmac(self._keys[present], row, mark)}"

    def genuine(self, row: MessageRow) -> bool:
        """Whether a row is as it was stored; tells of it if it is not."""
        if self.holds(row):
            return True
        self._found(row)
        return False

    def holds(self, row: MessageRow) -> bool:
        """Whether a row is as it was stored."""
        if not row.signature:
            return self.unsigned
        name, _, left = row.signature.partition(":")
        mark, _, said = left.partition(":")
        key = self._keys.get(name)
        if key is None:
            return False
        return hmac.compare_digest(self._hmac(key, row, mark).encode(), said.encode())

    def is_present(self, row: MessageRow) -> bool:
        """Whether its signature is by the present key, as it says."""
        return row.signature.startswith(f"{self._present}:")

    def _hmac(self, key: bytes, row: MessageRow, mark: str) -> str:
        digest = hmac.digest(key, _content(row, self._org, mark), "sha256")
        return urlsafe_b64encode(digest).decode().rstrip("=")


def key_id(key: bytes) -> str:
    """The name of a key, which tells nothing of it."""
    return hashlib.sha256(b"postroom key of messages" + key).hexdigest()[:8]


def mark_of(row: MessageRow) -> str:
    """The mark in its signature, "" for none."""
    return (*row.signature.split(":"), "", "")[1]


def _content(row: MessageRow, org: str, mark: str) -> bytes:
    """What is signed: each value with its length, so that nothing moves from one into another."""
    values = (
        *(org, mark, str(row.seq), row.id, row.sender, row.recipient),
        *(row.subject, row.text, row.message, row.context_id, row.reply_to, row.requeue_of),
        *(row.task, repr(float(row.sent_at)), repr(float(row.stored_at))),
        *(repr(float(row.expires_at)), f"{row.expects_reply:d}{row.requests:d}"),
    )
    joined = "".join([f"{len(value)}:{value}" for value in values])
    return joined.replace("\0", REPLACEMENT).encode()  # as a session stores them
