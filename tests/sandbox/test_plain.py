"""What the provider without a wall still keeps."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.port import Level, Mount
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("wall-sidecar-closed")
async def test_the_environment_is_what_the_spec_says(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOST_SECRET", "x")

    environment = await rig.ask(PlainProvider(), "say(dict(os.environ))", env={"GIVEN": "1"})

    environment.pop("LC_CTYPE", None)  # Python sets it itself
    assert environment == {"GIVEN": "1"}


async def test_a_secret_is_a_private_file_and_gone_after_the_end(rig: Rig):
    path = PlainProvider().paths(rig.draft()).secrets + "/token"
    code = f"say([os.stat({path!r}).st_mode & 0o777, open({path!r}).read()])"

    assert await rig.ask(PlainProvider(), code, secrets={path: b"hush"}) == [0o600, "hush"]
    assert sorted(p.name for p in rig.folder.iterdir()) == ["gateway.sock", "log", "workspace"]


async def test_the_paths_are_those_of_the_host(rig: Rig):
    draft = rig.draft(read_only=(Mount(rig.folder, "/opt/shared"),))

    paths = PlainProvider().paths(draft)

    assert paths.workspace == str(rig.workspace)
    assert paths.gateway_socket == str(rig.gateway)
    assert paths.mounts == {"/opt/shared": str(rig.folder)}


async def test_a_program_that_does_not_exist_ends_as_in_a_shell(rig: Rig):
    handle = await rig.start(PlainProvider(), "", argv=("/nonexistent",))

    assert (await handle.wait()).code == 127
    assert "/nonexistent" in rig.log.read_text()


async def test_a_secret_outside_its_folder_is_refused(rig: Rig):
    with pytest.raises(InvalidInput):
        await rig.start(PlainProvider(), "", secrets={str(rig.folder / "x"): b""})


async def test_the_handle_says_that_there_is_no_wall(rig: Rig):
    handle = await rig.start(PlainProvider(), "")

    assert handle.level is Level.NONE
    await handle.wait()
