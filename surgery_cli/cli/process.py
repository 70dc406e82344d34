"""How this process keeps memory, when it looks for garbage, and that it leaves without tidying up."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from typing import TYPE_CHECKING, Final, NoReturn

from surgery_cli.hosts.current import current
from surgery_cli.script.time_limit import is_running_on
from surgery_cli.settings.heap import LARGEST_REUSED_BYTES

if TYPE_CHECKING:
    import ctypes

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_MMAP_MAX: Final = -4
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 512 << 20
_IN_HUGE_PAGES_BYTES: Final = 448 << 20  # less than what goes back when it is freed
_BLOCKS_BESIDE: Final = 65_536  # so many may lie outside of the heap; what glibc begins with
_ALLOCATIONS: Final = 200_000


def reuse_blocks() -> None:
    """Let blocks of tensors come from memory that was used before, where the C library is glibc.

    By default every thread allocates from an arena of its own, which keeps what was freed there. Blocks pass through a
    dozen threads (ours, TensorStore's), and each would keep a block or two: 200 MB that `--memory` does not know of.
    And large blocks go back to the system as soon as they are freed, which then has to clear their pages for the next
    one: four times as many page faults in a cast of 1.5 GB.
    """
    if sys.platform != "linux":
        return
    import ctypes  # which help does without

    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return  # another C library; it has no arenas to share
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, LARGEST_REUSED_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    if not _is_limited():
        _grow_in_huge_pages(library)


def _is_limited() -> bool:
    """Whether `ulimit` counts memory that is there without being touched."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def _grow_in_huge_pages(library: ctypes.CDLL) -> None:
    """Let the heap come from the system in pages of 2 MiB instead of 4 KiB, where the system has them.

    A page that is touched for the first time stops its thread, and a virtual machine's host has to find it as well:
    110,000 times in a reshard of 1.5 GB, 16,000 times so. The heap gets as large for a moment; nothing is touched.
    """
    import ctypes
    import mmap

    library.malloc.restype = ctypes.c_void_p
    library.mallopt(_M_MMAP_MAX, 0)  # a block so large would lie outside of the heap
    block = library.malloc(ctypes.c_size_t(_IN_HUGE_PAGES_BYTES))
    library.mallopt(_M_MMAP_MAX, _BLOCKS_BESIDE)
    if block is not None:
        start = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        length = block + _IN_HUGE_PAGES_BYTES - start
        library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)
        library.free(ctypes.c_void_p(block))


def sleep_when_idle() -> None:
    """Let the threads that NumPy's OpenBLAS starts wait asleep; asked before NumPy is loaded.

    By default each of them, one for every core but one, spins for a tenth of a second before it sleeps: at the start of
    every command, whether it multiplies matrices or not, beside what loads the program. The number is of a power of two
    of clock cycles, the least that OpenBLAS takes; what the environment says stands.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def collect_rarely() -> None:
    """Look for reference cycles less often than Python does by default.

    A tree of 100,000 leaves is a million objects without any cycle; walking them again and again costs more time than
    half of what is done with them. So do the modules of the program: a twentieth of a small edit, while they load.
    """
    gc.set_threshold(_ALLOCATIONS, 20, 100)


def leave(code: int) -> NoReturn:
    """End the process. Its objects are not freed one by one, which takes a tenth of the time of a small edit.

    Where other threads still run that Python waits for, or JAX was loaded, whose devices want to be closed, it ends in
    the usual way; but not where something of the user's was given up, for which that would wait. One of several
    processes knows how by itself.
    """
    if current:
        current[0].leave(code)
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    is_waiting = not all(thread.daemon for thread in others) or "jax" in sys.modules
    if is_waiting and not is_running_on():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            os.dup2(2, 1)  # what a script has run at the end is no part of our document
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # whoever read it went away
            stream.flush()
    os._exit(code)
