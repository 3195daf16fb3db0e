"""The shape of a Message."""

from __future__ import annotations

import pytest

from postroom_a2a.errors import InvalidInput
from postroom_a2a.messages import MAX_CONTEXT, context_of, text_message


def test_a_context_is_taken_up_to_its_limit_and_a_longer_one_is_refused():
    longest = "x" * MAX_CONTEXT
    assert context_of(text_message("m", "text", context_id=longest)) == longest
    with pytest.raises(InvalidInput, match="a context id has at most 256 characters"):
        text_message("m", "text", context_id=longest + "x")
    for odd in (longest + "x", 7, None):
        assert context_of({"contextId": odd}) == ""
