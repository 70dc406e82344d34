"""What was freed does not stay with a run that holds as much as it may."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import ArraySource, spec_of

RUN = """
import numpy as np
from surgery_cli.cli.process import reuse_blocks
from surgery_cli.engine.freed_memory import HEAP
from surgery_cli.store.filesystem.memory_limits import resident_bytes

reuse_blocks()
for allowed in ({much} << 20, 32 << 20):
    HEAP.allow(allowed)
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(256)]
    del blocks[::2]
    before = resident_bytes()
    HEAP.{asked}
    print((before - resident_bytes()) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how much a process has is told by Linux")
@pytest.mark.parametrize(
    ("asked", "much"),
    [("make_room(16 << 20)", 512), ("make_room_for_one(64 << 20)", 512 + 3 * 64)],
    ids=["a block", "a chunk that takes none of it"],
)
def test_what_lies_free_between_blocks_goes_back_once_that_is_too_much(asked, much) -> None:
    code = RUN.format(asked=asked, much=much)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    within, beyond = map(int, done.stdout.split())
    assert within < 8
    assert beyond > 100


HUGE = """
import re, resource
from pathlib import Path
import numpy as np
from surgery_cli.cli.process import reuse_blocks

if {limit}:
    resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
reuse_blocks()
held = [np.ones(768 << 10, np.uint8) for _ in range(200)]  # so small that NumPy asks for nothing
maps = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
heap = [one for one in maps if "[heap]" in one and re.search("VmFlags:.* hg( |$)", one, re.MULTILINE)]
print(sum(int(re.search(r"Rss: *([0-9]+)", one).group(1)) for one in heap))
"""
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not PAGES.exists() or "[madvise]" not in PAGES.read_text(),
    reason="only where the system has huge pages for those who ask",
)
@pytest.mark.parametrize(("limit", "comes"), [(0, True), (8 << 30, False)], ids=["free", "limited"])
def test_the_heap_comes_in_huge_pages_unless_what_is_untouched_is_counted(limit, comes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUGE.format(limit=limit)], capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > 100_000) == comes  # of 150 MB


ARENAS = """
import ctypes, sys, tempfile
from surgery_cli.cli.main import run
try:
    run()
except SystemExit as ended:
    assert not ended.code
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
with tempfile.TemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fdopen(file.fileno(), b"w"))
    libc.malloc_info(0, stream)
    libc.fflush(stream)
    file.seek(0)
    sys.stderr.write(str(file.read().count(b"<heap nr=")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
def test_every_thread_of_a_run_allocates_from_one_arena(tmp_path) -> None:
    """What a second arena keeps, `--memory` knows nothing of; one thread before the library is asked makes one."""
    tree = {name: np.arange(4096.0, dtype=np.float32) for name in "abcdefgh"}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", tree)
    words = ["rescale", tmp_path / "saved", tmp_path / "new", "**", "--by", "0.5", "--quiet"]
    command = [sys.executable, "-c", ARENAS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "1"


def test_a_block_keeps_no_more_in_memory_than_itself() -> None:
    leaf = np.arange(4096.0).reshape(64, 64)
    recipe = Stored(LeafRef("", LeafPath(("w",))), spec_of(leaf))
    evaluation = Evaluation(recipe, {"": ArraySource({"w": leaf})}, HostKit(), (8, 64))
    found = evaluation.block(evaluation.windows[1])
    np.testing.assert_array_equal(found, leaf[8:16])
    assert not np.shares_memory(found, leaf)
