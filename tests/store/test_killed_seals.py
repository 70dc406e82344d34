"""The draft of a record that a killed seal has left goes by the name of what was sealed; a living one's stays."""

import subprocess
import sys

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.store.filesystem.names import name_of_record
from surgery_cli.store.write.leftovers import draft_of


@pytest.fixture(params=["file", "flat", "bare"])
def sealable(request, tmp_path):
    """A checkpoint whose record stands beside it, or in it."""
    place = tmp_path / "runs" / "ck"
    place.parent.mkdir()
    if request.param == "file":
        place.write_bytes(flax.serialization.msgpack_serialize({"w": np.ones(3, np.float32)}))
        return place
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(place, {"w": np.ones(3, np.float32)})
    if request.param == "bare":
        for name in ("_METADATA", "_sharding"):
            (place / name).unlink(missing_ok=True)
    return place


@pytest.mark.sampled(3)
@pytest.mark.parametrize("may_write_around", [True, False])
def test_what_a_killed_seal_left_goes_by_the_name_of_what_was_sealed(
    sealable, tmp_path, may_write_around
):
    script = (
        "import os, signal, sys\n"
        "from surgery_cli import surgery\n"
        "from surgery_cli.proof import record_files\n"
        "record_files.may_write_into = lambda folder: str(folder) in sys.argv[2:]\n"
        "for moment in range(1, 5):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        seen = [0]\n"
        "        def listen(event, arguments):\n"
        "            if seen[0] or 'surgery-tmp' in str(arguments[:1]):\n"
        "                seen[0] += event in ('open', 'os.rename', 'os.remove')\n"
        "            if seen[0] == moment: signal.raise_signal(9)\n"
        "        sys.addaudithook(listen)\n"
        "        surgery.seal(sys.argv[1])\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] in (0, 9)\n"
    )
    own = sealable if (sealable / "_METADATA").exists() else sealable.parent
    writable = [own, *[own.parent] * may_write_around]
    subprocess.run([sys.executable, "-c", script, sealable, *writable], check=True)
    left = {str(path) for path in tmp_path.rglob(".*surgery-tmp*")}
    assert left
    sibling = sealable.with_name("other")
    living = draft_of(sealable.with_name(name_of_record(sealable.name)), sealable)
    living.write_bytes(b"")

    assert _cleaned(sibling) == (set(), set())
    assert _cleaned(sealable, stale=True, dry_run=True) == (left, {str(living)})
    assert _cleaned(sealable) == (left, {str(living)})
    assert {str(path) for path in tmp_path.rglob(".*surgery-tmp*")} == {str(living)}


def _cleaned(place, **options):
    """What is removed, and what is kept."""
    found = surgery.clean(str(place), **options)
    return {row.path for row in found.removed}, {row.path for row in found.kept}
