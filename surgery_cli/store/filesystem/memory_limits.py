"""How much memory this process can still have: the machine's, its container's, and what `ulimit` lets it have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.words.quantities import byte_text

_CGROUPS: Final = Path("/sys/fs/cgroup")
_STILL_MAPPED_BYTES: Final = 512 << 20
"""Address space that libraries and the stacks of threads take once the work begins (measured: up to 0.45 GiB)."""

_STILL_DATA_BYTES: Final = 96 << 20
"""Of these, what counts as data, most of it the stacks of threads (measured: 60 to 90 MiB)."""

_STILL_TAKEN_BYTES: Final = 48 << 20
"""Memory that the program itself takes once the work begins (measured: 40 MiB)."""

_ALWAYS_TRIED_BYTES: Final = 128 << 20
"""What needs no more than this is not refused by a look at the machine, and no budget is cut to less."""

_UNLIMITED: Final = 1 << 60
"""Version 1 of cgroups says that there is no limit by a number of about 2 to the 63rd."""


class Room(NamedTuple):
    """Bytes of memory that a process can still have, and by what they are bounded, as the end of a sentence.

    ``is_deadly``: they are counted closely, and who takes more is ended without a word.
    """

    bytes: int
    bound: str
    is_deadly: bool = False

    @property
    def tried_bytes(self) -> int:
        """What is tried: where they are not counted closely, that tells too little rather than too much."""
        return self.bytes if self.is_deadly else max(self.bytes, _ALWAYS_TRIED_BYTES)


def room(cgroups: Path = _CGROUPS, process: Path = Path("/proc/self")) -> Room:
    """The memory that this process can have: what is free or can be freed, within every limit that it is under."""
    found = [
        Room(_free_bytes(), "are free"),
        *_left_in_cgroups(cgroups, process / "cgroup"),
        *_left_by_ulimit(process / "statm"),
    ]
    least = min(found)
    return least._replace(bytes=max(least.bytes, 0))


def resident_bytes() -> int:
    """The bytes of memory that this process has now; 0 where the system does not say."""
    pages = _text(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def available_bytes() -> int:
    """The bytes of ``room``."""
    return room().bytes


def _free_bytes() -> int:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    # no Linux: all memory that the machine has
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_cgroups(cgroups: Path, own: Path) -> Iterator[Room]:
    """What is left in the process's control group and in every one around it, where a limit is set.

    Pages of files that can be dropped count as free.
    """
    for line in _text(own).splitlines():
        number, controllers, name = (*line.split(":", 2), "", "")[:3]
        if number == "0":
            root, limit, used, prefix = cgroups, "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            root, prefix = cgroups / "memory", "total_"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inside = root / name.strip("/")
        # in a container the group's own name may not exist: its root is the group
        for folder in (inside, *inside.parents):
            most, now = _text(folder / limit).strip(), _text(folder / used).strip()
            if most.isdigit() and now.isdigit() and int(most) < _UNLIMITED:
                taken = max(int(now) - _droppable(folder, prefix), 0)
                said = f"cgroup limit {byte_text(int(most))}, {byte_text(taken)} in use"
                said += f", {byte_text(_STILL_TAKEN_BYTES)} for the program itself"
                bound = f"are left of what its container or job may have ({said})"
                yield Room(int(most) - taken - _STILL_TAKEN_BYTES, bound, is_deadly=True)
            if folder == root:
                break


def _droppable(folder: Path, prefix: str) -> int:
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    lines = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in names)


def _left_by_ulimit(statm: Path) -> Iterator[Room]:
    """What the limits of address space and of data leave for values, where they are set."""
    try:
        import resource
    except ImportError:  # no Unix
        return
    pages = [int(count) * os.sysconf("SC_PAGE_SIZE") for count in _text(statm).split()] or [0] * 7
    mapped, data = pages[0], pages[5]
    for kind, taken, what, is_deadly in (
        (resource.RLIMIT_AS, mapped + _STILL_MAPPED_BYTES, "map (`ulimit -v`", False),
        (resource.RLIMIT_DATA, data + _STILL_DATA_BYTES, "have of data (`ulimit -d`", True),
    ):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            bound = f"are left of what it may {what} is {byte_text(limit)})"
            yield Room(limit - taken, bound, is_deadly)


def _text(path: Path) -> str:
    """What a file of the system says; nothing where it does not exist. Control groups may have any name."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
