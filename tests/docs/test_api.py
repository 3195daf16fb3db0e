"""docs/api.md says of every route what the API's own document says."""

from __future__ import annotations

import pytest

from tools import api


@pytest.mark.requirement("api-as-described")
def test_the_tables_of_objects_and_routes_are_as_the_code_has_them():
    page = api.PAGE.read_text(encoding="utf-8")

    assert api.written(page) == page, "stale; write it with: python -m tools.api"
