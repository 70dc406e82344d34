"""How much memory this process can still have: the machine's, its container's, and what `ulimit` lets it map."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_CGROUPS: Final = Path("/sys/fs/cgroup")
_STILL_MAPPED_BYTES: Final = 512 << 20
"""Address space that libraries and the stacks of threads take once the work begins (measured: up to 0.45 GiB)."""

_UNLIMITED: Final = 1 << 60
"""Version 1 of cgroups says that there is no limit by a number of about 2 to the 63rd."""


class Room(NamedTuple):
    """Bytes of memory that a process can still have, and by what they are bounded, as the end of a sentence."""

    bytes: int
    bound: str


def room(cgroups: Path = _CGROUPS, process: Path = Path("/proc/self")) -> Room:
    """The memory that this process can have: what is free or can be freed, within every limit that it is under."""
    found = [Room(_free_bytes(), "are free")]
    found += [
        Room(free, "are left of what its container or job may have")
        for free in _left_in_cgroups(cgroups, process / "cgroup")
    ]
    mapped = _left_to_map(process / "statm")
    if mapped is not None:
        found.append(Room(mapped, "are left of what it may map (`ulimit -v`)"))
    least = min(found)
    return Room(max(least.bytes, 0), least.bound)


def available_bytes() -> int:
    """The bytes of ``room``."""
    return room().bytes


def _free_bytes() -> int:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    # no Linux: all memory that the machine has
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_cgroups(cgroups: Path, own: Path) -> Iterator[int]:
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
                yield int(most) - max(int(now) - _droppable(folder, prefix), 0)
            if folder == root:
                break


def _droppable(folder: Path, prefix: str) -> int:
    names = (f"{prefix}inactive_file", f"{prefix}active_file")
    lines = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in names)


def _left_to_map(statm: Path) -> int | None:
    """What the limit of address space leaves for values; None without a limit."""
    try:
        import resource
    except ImportError:  # no Unix
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = _text(statm).split()
    mapped = int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
    return limit - mapped - _STILL_MAPPED_BYTES


def _text(path: Path) -> str:
    """What a file of the system says; nothing where it does not exist. Control groups may have any name."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
