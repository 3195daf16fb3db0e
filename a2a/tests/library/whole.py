"""A message with all that A2A knows, and metadata that nobody knows."""

from __future__ import annotations

from typing import Any

WHOLE: dict[str, Any] = {
    "messageId": "m",
    "role": "ROLE_USER",
    "contextId": "talk",
    "parts": [
        {"text": "look", "metadata": {"kept_as_it_is": [1, None, 2.5], "ä": "\u2028"}},
        {"data": {"rows": [{"a_b": 1}], "none": None}, "mediaType": "application/vnd.x+json"},
        {"url": "https://a.example/b?c=d", "filename": "b.csv", "mediaType": "text/csv"},
        {"raw": "AP8=", "filename": "c.bin", "mediaType": "image/x-icon"},
        {"data": None},
    ],
    "metadata": {"https://x.example/v1": {"deep_key": [{"z": 1, "a": 2}]}},
    "extensions": ["https://x.example/v1"],
    "referenceTaskIds": ["0" * 32],
}
