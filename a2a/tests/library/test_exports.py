"""The public names of the library: each is there, and those without the SDK load nothing of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import postroom_a2a
from postroom_a2a import nats

PLAIN = ["Call", "Caller", "CoreCaller", "CoreServer", "Operations", "RpcError", "subject_of"]


def test_a_public_name_is_there():
    for package in (postroom_a2a, nats):
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)


def test_the_table_of_modules_names_what_is_public():
    assert sorted(postroom_a2a._MODULES) == sorted(postroom_a2a.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = postroom_a2a.nothing


@pytest.mark.requirement("package-footprint-bounded")
def test_serving_and_calling_frames_loads_neither_sdk_nor_protobuf():
    program = (
        f"import sys; from postroom_a2a import {', '.join(PLAIN)}; "
        "sys.exit(any(name.split('.')[0] in {'a2a', 'google', 'pydantic'} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
