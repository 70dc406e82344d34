"""Where a run reads and writes: a device that fills, another one, one without links, read-only, another user's."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random

from tests.faults.commands import Fault
from tests.faults.machine import Case, Verdict

STOPPED = Fault("STOP")
"""At a call that writes."""
NOBODY = 65534
AMPLE = 16 << 20
IMAGES = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "btrfs": ("mkfs.btrfs", "-q", "--mixed"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "vfat": ("mkfs.vfat",),
    "exfat": ("mkfs.exfat", "-q"),
}
"""What makes a file system in an image, which is mounted by a loop device."""
IMAGE_BYTES = 320 << 20
"""Of which nearly all are a hole: `mkfs.xfs` takes no less."""


@cache
def why_not(kind: str) -> str:
    """Why a file system of this kind cannot be mounted here; '' if it can."""
    if os.geteuid():
        return "only root may mount"
    if kind in IMAGES and shutil.which(IMAGES[kind][0]) is None:
        return f"{IMAGES[kind][0]} is not installed"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            with device(folder, kind):
                return ""
        except subprocess.CalledProcessError as error:
            return f"{kind} cannot be mounted: {(error.stderr or b'').decode().strip()}"


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[None]:
    """Inside, something is mounted there; hidden again afterwards, whoever still has a file of it open."""
    subprocess.run(["mount", *words, str(place)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


@contextmanager
def device(beside: Path, kind: str, size: int = AMPLE) -> Iterator[Path]:
    """An empty file system of its own, in memory or in an image ``beside`` it."""
    place = beside / f"device-{kind}"
    place.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        if kind == "tmpfs":
            stack.enter_context(mounted(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"))
        else:
            image = beside / f"{kind}.image"
            stack.callback(image.unlink)
            image.touch()
            os.truncate(image, IMAGE_BYTES)
            subprocess.run([*IMAGES[kind], image], check=True, capture_output=True)
            stack.enter_context(mounted(place, "-t", kind, "-o", "loop", str(image)))
        yield place


@contextmanager
def moved_to(case: Case, target: Path, *tops: str) -> Iterator[None]:
    """Inside, these folders of a case stand on a device, with all that is in them, under their own names."""
    with ExitStack() as stack:
        for top in tops:
            shutil.copytree(case.place / top, target / top, symlinks=True)
            stack.enter_context(mounted(case.place / top, "--bind", str(target / top)))
        yield


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    with mounted(place, "--bind", str(place)):
        words = ["mount", "-o", "remount,ro,bind", str(place)]
        subprocess.run(words, check=True, capture_output=True)
        yield


def _where(case: Case) -> str:
    """The folder of a case in which its result stands."""
    return Path(case.row.result).parts[0]


def _writes_in_source(case: Case) -> bool:
    return _where(case) == "in"


def _full(case: Case, at: int) -> Verdict:
    """The device of the result is filled by others while a run stands still at a call."""
    with device(case.place.parent, "tmpfs") as target, moved_to(case, target, _where(case)):
        ended = case.run(STOPPED._replace(at=at))
        ballast = target / "of others"
        if ended.stopped:
            _fill(ballast)
            ended = case.commands.go_on(ended)
        verdict = case.judge(f"full {at}", ended, (4, 2))
        ballast.unlink(missing_ok=True)
        if ended.code:
            case.goes_on(verdict)
        return verdict


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _small(case: Case, at: int) -> Verdict:
    """There is too little room from the beginning, or just enough."""
    size = sum(file.stat().st_size for file in case.place.rglob("*") if file.is_file())
    room = 4 * size + (at << 12)
    with device(case.place.parent, "tmpfs", room) as target, moved_to(case, target, _where(case)):
        return case.judge(f"small {at}", case.run(), (4, 2))


def _on(kind: str, *, with_source: bool) -> Callable[[Case, int], Verdict]:
    """The result, or everything, is on a file system of that kind."""

    def run(case: Case, at: int) -> Verdict:
        tops = ("in", "out") if with_source else (_where(case),)
        with device(case.place.parent, kind) as target, moved_to(case, target, *tops):
            return _done(case.judge(f"{kind} {at}", case.run(), ()))

    return run


def _source_read_only(case: Case, at: int) -> Verdict:
    with read_only(case.place / "in"):
        ended = case.run()
        verdict = case.judge(f"source-read-only {at}", ended, (2, 4))
    return _refused(verdict) if _writes_in_source(case) else _done(verdict)


def _target_read_only(case: Case, at: int) -> Verdict:
    with read_only(case.place / _where(case)):
        verdict = case.judge(f"target-read-only {at}", case.run(), (2, 4))
    return _refused(verdict)


def _without(*calls: str) -> Callable[[Case, int], Verdict]:
    """The file system does not have these calls, as the shim says in its place."""

    def run(case: Case, at: int) -> Verdict:
        ended = case.run(Fault(deny=",".join(calls)))
        return _done(case.judge(f"no-links {at}", ended, ()))

    return run


def _of_another(*, source: int, target: int, file: int = 0) -> Callable[[Case, int], Verdict]:
    """Source and destination belong to another user, with these modes for folders; ``file``: of the source's files."""

    def run(case: Case, at: int) -> Verdict:
        for top, mode in (("in", source), ("out", target)):
            for path in [case.place / top, *(case.place / top).rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
                path.chmod(mode if path.is_dir() else file or mode & 0o666)
        ended = case.run(powerless=True)
        is_refused = file or not (source if _writes_in_source(case) else target) & 0o002
        verdict = case.judge(f"user {at}", ended, (2, 3, 4) if is_refused else ())
        return _refused(verdict) if is_refused else _done(verdict)

    return run


def _done(verdict: Verdict) -> Verdict:
    if verdict.ended.code:
        verdict.blame("exit", f"{verdict.ended.code}: {verdict.ended.said}")
    return verdict


def _refused(verdict: Verdict) -> Verdict:
    if not verdict.ended.code or verdict.state != "old":
        verdict.blame("exit", f"{verdict.ended.code}, {verdict.state}: {verdict.ended.said}")
    return verdict


ROOT = "root"
"""What a deed needs that mounts nothing, and gives files away."""

DEEDS: dict[str, tuple[Callable[[Case, int], Verdict], str]] = {
    "full": (_full, "tmpfs"),
    "small": (_small, "tmpfs"),
    "other-device": (_on("tmpfs", with_source=False), "tmpfs"),
    **{f"on-{kind}": (_on(kind, with_source=True), kind) for kind in IMAGES},
    **{f"to-{kind}": (_on(kind, with_source=False), kind) for kind in IMAGES},
    "source-read-only": (_source_read_only, "tmpfs"),
    "target-read-only": (_target_read_only, "tmpfs"),
    "no-links": (_without(f"link:{errno.EPERM}"), ""),
    "links-across": (_without(f"link:{errno.EXDEV}"), ""),
    "no-links-no-exchange": (_without(f"link:{errno.EPERM}", f"rename2:{errno.EINVAL}"), ""),
    "source-of-another": (_of_another(source=0o755, target=0o777), ROOT),
    "target-of-another": (_of_another(source=0o755, target=0o755), ROOT),
    "unreadable": (_of_another(source=0o755, target=0o777, file=0o600), ROOT),
}
"""What is done, and what it needs of the machine."""


def why_not_done(deed: str) -> str:
    """Why it cannot be done here; '' if it can."""
    needs = DEEDS[deed][1]
    if needs == ROOT:
        return "only root gives files to another user" if os.geteuid() else ""
    return why_not(needs) if needs else ""


def draw(case: Case, chance: Random) -> str:
    deed = chance.choice([name for name in DEEDS if not why_not_done(name)])
    last = case.counted(STOPPED) if deed == "full" else 500
    return f"{deed} {chance.randint(1, last)}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Lay everything there, and run."""
    deed, at = words.split()
    case.lay()
    verdict = DEEDS[deed][0](case, int(at))
    verdict.what = words
    return [verdict]
