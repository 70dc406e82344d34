"""The power goes: what was not synced is lost, in part or whole, and every moment gives the old or the new one.

The calls of a run are recorded and replayed on inodes and folders. Of the changes of names, those that no fsync has
made to last may be there up to any of them, in order (a journal), or in each folder up to another (`loose`); what a
file holds that was not synced is there, is zeros, or is not.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.commands import Ended
from tests.faults.machine import Case, Verdict

LOOSE = 2
"""How many images of each moment are drawn at random, beside those four that lose most and least."""


@dataclass
class Inode:
    """A file, or a folder with its names; ``synced`` is what of a file lasts."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    names: dict[str, int] | None = None


@dataclass
class Change:
    """Of names: what is taken from and put into folders; ``lasts`` once one of these, or the journal, is synced."""

    takes: list[tuple[int, str]]
    puts: list[tuple[int, str, int]]
    lasts: bool = False
    is_synced: bool = False
    """Also where a file system has no journal: a folder that it touches was synced."""


class Disk:
    """Inodes as they are on the disk before a run, and all that a run changes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.inodes: list[Inode] = []
        self.changes: list[Change] = []
        self.open: dict[str, int] = {}
        self.root = self._load(place)
        self.before = {n: dict(i.names) for n, i in enumerate(self.inodes) if i.names is not None}

    def _load(self, path: Path) -> int:
        if path.is_dir():
            made = self._new(names={})
            self.inodes[made].names = {p.name: self._load(p) for p in path.iterdir()}
            return made
        content = path.read_bytes()
        return self._new(data=bytearray(content), synced=content)

    def _new(self, **what: object) -> int:
        self.inodes.append(Inode(**what))  # type: ignore[arg-type]
        return len(self.inodes) - 1

    def _names(self, folder: int) -> dict[str, int]:
        names = self.inodes[folder].names
        assert names is not None
        return names

    def _at(self, path: str) -> tuple[int, str]:
        """The folder of a path, and the name in it."""
        *above, name = Path(path).relative_to(self.place).parts or ("",)
        folder = self.root
        for part in above:
            folder = self._names(folder)[part]
        return folder, name

    def _inode(self, path: str) -> int:
        folder, name = self._at(path)
        return self._names(folder)[name] if name else folder

    def _change(self, takes: list[tuple[int, str]], puts: list[tuple[int, str, int]]) -> None:
        for folder, name in takes:
            del self._names(folder)[name]
        for folder, name, inode in puts:
            self._names(folder)[name] = inode
        self.changes.append(Change(takes, puts))

    def take(self, words: list[str], data: bytes) -> None:
        """One call of the log."""
        call, *rest = words
        if call == "open":
            descriptor, how, path = rest
            if how == "new":
                self._change([], [(*self._at(path), self._new())])
            self.open[descriptor] = self._inode(path)
            if how == "cut":
                self.inodes[self.open[descriptor]].data.clear()
        elif call == "write":
            at = int(rest[1])
            held = self.inodes[self.open[rest[0]]].data
            held.extend(bytes(max(at + len(data) - len(held), 0)))
            held[at : at + len(data)] = data
        elif call == "size":
            held, size = self.inodes[self.open[rest[0]]].data, int(rest[1])
            held[:] = held[:size] + bytes(max(size - len(held), 0))
        elif call == "sync":
            self._sync(self.open[rest[0]])
        elif call in ("rename", "swap"):
            (one, two) = (self._at(path) for path in rest)
            old, other = self._inode(rest[0]), (self._inode(rest[1]) if call == "swap" else None)
            self._change([one], [(*two, old), *([] if other is None else [(*one, other)])])
        elif call == "link":
            self._change([], [(*self._at(rest[1]), self._inode(rest[0]))])
        elif call == "mkdir":
            self._change([], [(*self._at(rest[0]), self._new(names={}))])
        else:
            self._change([self._at(rest[0])], [])

    def _sync(self, inode: int) -> None:
        self.inodes[inode].synced = bytes(self.inodes[inode].data)
        for change in self.changes:
            change.lasts = True
            touched = {folder for folder, *_ in (*change.takes, *change.puts)}
            change.is_synced = change.is_synced or inode in touched

    def image(self, many: float, data: str, loose: Random | None) -> dict[str, bytes]:
        """What is there when the power comes back: files by path, and folders with a slash behind."""
        names = {n: dict(held) for n, held in self.before.items()}
        open_ones = [c for c in self.changes if not (c.lasts if loose is None else c.is_synced)]
        kept = {id(c) for c in open_ones[: round(many * len(open_ones))]}
        if loose is not None:
            up_to: dict[int, int] = {}
            for n, change in enumerate(open_ones):
                folder = (change.puts or change.takes)[0][0]
                up_to.setdefault(folder, loose.randint(n, len(open_ones)))
                if n < up_to[folder]:
                    kept.add(id(change))
        for change in self.changes:
            is_there = change.lasts if loose is None else change.is_synced
            if not is_there and id(change) not in kept:
                continue
            for folder, name in change.takes:
                names.setdefault(folder, {}).pop(name, None)
            for folder, name, inode in change.puts:
                names.setdefault(folder, {})[name] = inode
        return dict(self._walk(self.root, "", names, data, loose))

    def _walk(
        self,
        folder: int,
        prefix: str,
        names: dict[int, dict[str, int]],
        data: str,
        loose: Random | None,
    ) -> Iterator[tuple[str, bytes]]:
        for name, inode in names.get(folder, {}).items():
            one = self.inodes[inode]
            if one.names is not None:
                yield f"{prefix}{name}/", b""
                yield from self._walk(inode, f"{prefix}{name}/", names, data, loose)
                continue
            how = loose.choice(("synced", "zeros", "all")) if loose is not None else data
            if how == "all" or bytes(one.data) == one.synced:
                yield f"{prefix}{name}", bytes(one.data)
            elif how == "zeros":
                yield f"{prefix}{name}", one.synced + bytes(max(len(one.data) - len(one.synced), 0))
            else:
                yield f"{prefix}{name}", one.synced


def draw(case: Case, chance: Random) -> str:
    return f"seed {chance.randrange(1000)}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Record one run, and let the power go after each of its calls."""
    loose = Random(words)
    case.lay()
    disk = Disk(case.place)
    log = case.place.with_name("log")
    log.unlink(missing_ok=True)
    ended = case.run(log=log)
    calls = list(_calls(log.read_bytes()))
    seen: dict[bytes, str] = {}
    verdicts = []
    for number in range(len(calls) + 1):
        if number:
            disk.take(*calls[number - 1])
        sure = [
            disk.image(m, d, None)
            for m, d in ((0, "synced"), (1, "synced"), (1, "zeros"), (0, "all"))
        ]
        for image in (*sure, *(disk.image(0, "all", loose) for _ in range(LOOSE))):
            what = f"{words} at call {number} of {len(calls)}"
            is_over = number == len(calls)
            verdicts.append(_judged(case, what, image, seen, ended if is_over else None))
    return verdicts


def _judged(
    case: Case, what: str, image: dict[str, bytes], seen: dict[bytes, str], over: Ended | None
) -> Verdict:
    """Whether what is there is old or new; and once the command had said that it is done, new."""
    key = hashlib.sha256(
        repr(sorted((n, hashlib.sha256(c).digest()) for n, c in image.items())).encode()
    ).digest()
    if key not in seen:
        _lay(case.place, image)
        seen[key] = case.state()
    verdict = Verdict(case.row.name, what, over or Ended(0, stopped=False, code=-9), seen[key])
    changed = [
        name
        for name, (_, _, content) in case.before.items()
        if content and hashlib.sha256(image.get(name, b"")).hexdigest() != content
    ]
    if changed:
        verdict.blame("source", f"changed: {changed[:3]}")
    if verdict.state in ("torn", "gone"):
        verdict.blame("torn", f"the destination is {verdict.state}; {case.why}")
    if over is not None and verdict.state != "new":
        verdict.blame(
            "sentence", f"exit 0, and after a power cut the destination is {verdict.state}"
        )
    return verdict


def _lay(place: Path, image: dict[str, bytes]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in image.items():
        if name.endswith("/"):
            (place / name).mkdir()
        else:
            (place / name).write_bytes(content)


def _calls(log: bytes) -> Iterator[tuple[list[str], bytes]]:
    at = 0
    while at < len(log):
        length, size = struct.unpack_from("II", log, at)
        at += 8
        yield log[at : at + length].decode().split("\0"), log[at + length : at + length + size]
        at += length + size
