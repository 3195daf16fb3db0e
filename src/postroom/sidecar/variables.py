"""Variables in the texts of a template."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(text: str, env: Mapping[str, str]) -> str:
    """`text` with the variables of `env` in place of `${NAME}`; an unknown name stays as it is."""
    return _PLACE.sub(lambda place: env.get(place[1], place[0]), text)
