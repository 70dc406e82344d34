"""Doctor: in which condition everything in a run directory is, and what to do about it. It changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, NotPermittedError, SurgeryError
from surgery_cli.examination.examine import examine
from surgery_cli.examination.rescue_advice import NOT_SEARCHED, NOTHING_WHOLE, new_place
from surgery_cli.examination.states import Condition, State
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.proof.file_marks import WHICH_OF_BOTH, said_of_both, stands_beside
from surgery_cli.proof.on_record import read_record
from surgery_cli.salvage.glance import could_fill
from surgery_cli.salvage.opening import opened
from surgery_cli.salvage.steps import named_in_run, step_named
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, PassingOver, reads
from surgery_cli.store.locate.refusals import missing
from surgery_cli.store.locate.step_formats import formats_text, step_formats
from surgery_cli.store.locate.steps import find_steps
from surgery_cli.surgery.expected_digests import FILE_CHANGED
from surgery_cli.surgery.file_checks import ADDED, ADDED_FOLDER
from surgery_cli.surgery.leaf_checks import OF_ANOTHER
from surgery_cli.surgery.open_ends import settings_read
from surgery_cli.surgery.rescue import rescue
from surgery_cli.surgery.verify import verify
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage

SETTLED_SECONDS: Final = 600


@reads
def doctor(
    root: str,
    *,
    read_data: bool = False,
    settled_seconds: float = SETTLED_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Examination:
    """Look at every step, save and leftover in ``root``, from metadata alone; nothing is changed there.

    With ``read_data``, every leaf is read and decoded, and held against the digests on record. What has changed within
    ``settled_seconds`` is not called damaged: a job may still be at work there.

    Raises:
        PlanError: nothing stands there.
        CheckpointError: nothing of a checkpoint stands there, or it cannot be looked at.
    """
    path = path_at(address(root, refusal=CheckpointError))
    filesystem.forget(path)
    if not filesystem.exists(path):
        step = step_named(path)
        if step is None:
            raise missing(filesystem.absolute(path))
        path = step
    real = filesystem.real(path)
    found = examine(real, settled_seconds)
    rows = [_row(one, real) for one in found]
    if read_data:
        rows = [
            _read(row, one, memory_bytes, listener, say)
            for row, one in zip(rows, found, strict=True)
        ]
    notes = [*_format_notes(real), *(_settings_notes(rows, found) if read_data else ())]
    rows = _with_older_steps(real, rows, found)
    return reports.Examination(
        root=str(real),
        places=rows,
        counts=dict(Counter(row.state for row in rows)),
        bytes=sum(one.seen.bytes_counted for one in found),
        # steps that share data files share what is dead in them
        dead_bytes=sum(min(one.dead_bytes, one.seen.bytes_counted) for one in found),
        leftover_bytes=sum(row.bytes for row in rows if row.state == State.LEFTOVER),
        reads_data=read_data,
        notes=[*notes, *_not_looked_at(found)],
    )


def _not_looked_at(found: Sequence[Condition]) -> list[Note]:
    """Which folders hold runs, or checkpoints, of which nothing is said here."""
    names = [one.place.path.name for one in found if one.state is State.APART and one.todo]
    if not names:
        return []
    hold = "hold" if len(names) > 1 else "holds"
    said = (
        f"{quoted(names, 4, word='and')} {hold} steps or checkpoints, which are not looked at here"
    )
    return [Consequence(DocsPage.DOCTOR, said)]


def _format_notes(root: Path) -> list[Note]:
    """What a root of finished steps that are named in several formats is to scripts, and to commands."""
    steps = find_steps(Listing.of(root)) if filesystem.is_folder(root) else []
    formats = step_formats(step.name for step in steps if step.is_finished)
    if len(formats) < 2:
        return []
    said = f"steps are named in {len(formats)} formats: {formats_text(formats)}"
    seen = "a script sees those of its own format alone, and commands take no newest: name a step"
    return [Consequence(DocsPage.DOCTOR, f"{said}; {seen}")]


def _settings_notes(
    rows: Sequence[reports.ExaminedPlace], found: Sequence[Condition]
) -> Iterator[Note]:
    """What stored settings of the optimizer mean for training from whole steps, whose values are read."""
    for row, one in zip(rows, found, strict=True):
        if row.state == State.WHOLE:
            with suppress(SurgeryError):  # said of the row, where it matters
                for note in settings_read(opened(str(one.place.path))):
                    yield note.saying(f"{row.path}: {note}")


def _row(found: Condition, root: Path) -> reports.ExaminedPlace:
    seen, left, path = found.seen, found.left, found.place.path
    changed = datetime.fromtimestamp(seen.changed_ns / 1e9, UTC) if seen.changed_ns else None
    return reports.ExaminedPlace(
        path=str(path.relative_to(root)),  # "." for itself
        state=str(found.state),
        step=found.place.step,
        of=found.of,
        bytes=seen.bytes,
        dead_bytes=found.dead_bytes,
        changed=None if changed is None else changed.isoformat(timespec="seconds"),
        leaves=found.leaves if left is None else left.leaves,
        whole_leaves=None if left is None else left.whole,
        at_least=left is not None and left.is_least,
        temporary={name: size for name, (_, size) in seen.unnamed.items()},
        why=found.why,
        todo=found.todo,
    )


def _read(
    row: reports.ExaminedPlace,
    found: Condition,
    memory_bytes: int,
    listener: Listener | None,
    say: Say,
) -> reports.ExaminedPlace:
    """The row after every leaf was read."""
    path = found.place.path
    if row.state in (State.WHOLE, State.CHANGED):
        try:
            return _verified(row, path, memory_bytes, listener, say)
        except NotPermittedError as error:
            first = error.problems[0]
            why = [f"{first.what}: {first.why}"]
            return replace(row, state=str(State.UNREADABLE), why=why, todo=first.fix)
    if (row.whole_leaves or row.at_least) and not isinstance(path, BucketPath):
        try:
            left = rescue(str(path), memory_bytes=memory_bytes, listener=listener)
        except SurgeryError:
            return row
        todo = row.todo.replace(NOT_SEARCHED, "") if left.whole else NOTHING_WHOLE
        leaves = len(left.leaves)
        sure = left.whole - sum(bool(one.assumes) for one in left.leaves)
        return replace(row, leaves=leaves, whole_leaves=sure, at_least=False, todo=todo)
    return row


def _verified(
    row: reports.ExaminedPlace,
    path: Path,
    memory_bytes: int,
    listener: Listener | None,
    say: Say,
) -> reports.ExaminedPlace:
    verdict = verify(
        str(path), allow_non_finite=True, memory_bytes=memory_bytes, listener=listener, say=say
    )
    counts = {"checked": verdict.checked, "unchecked": verdict.unchecked}
    if verdict.agrees:
        return replace(row, **counts)
    why = [
        f"{one.path}: {one.what}{f' ({one.detail})' if one.detail else ''}"
        for one in verdict.findings
    ]
    if (both := _said_of_both(path, verdict.findings)) is not None:
        said, todo = both
        return replace(row, **counts, state=str(State.CHANGED), why=[said, *why], todo=todo)
    bad = {one.path for one in verdict.findings if one.about is reports.Subject.LEAF}
    return replace(
        row,
        **counts,
        state=str(State.DAMAGED),
        why=why,
        todo=_todo(verdict.findings, quote(str(path))),
        whole_leaves=None if row.leaves is None else row.leaves - len(bad),
    )


_OF_ANOTHER: Final = OF_ANOTHER | {FILE_CHANGED, "record"}


def _said_of_both(path: Path, findings: Sequence[reports.Finding]) -> tuple[str, str] | None:
    """What is said, and to be done, of what reads and is not as the record beside it says; None of other findings."""
    if any(one.what not in _OF_ANOTHER for one in findings):
        return None
    with PassingOver(SurgeryError):
        checkpoint = opened(str(path))
        if stands_beside(checkpoint) and read_record(checkpoint, of_any=True) is not None:
            said, ways = said_of_both(checkpoint)
            return f"{said}: {WHICH_OF_BOTH}", ways
    return None  # of a damaged record


def _todo(findings: Sequence[reports.Finding], path: str) -> str:
    """What to do about what `verify` found."""
    of = {one.about for one in findings}
    items = [one.path for one in findings if one.about is reports.Subject.ITEM]
    if of == {reports.Subject.ITEM}:
        again = quoted(list(dict.fromkeys(items)), 4, word="and")
        return f"every leaf is in its place: copy {again} again from where it is whole"
    if of == {reports.Subject.FILE}:
        return f"every leaf is in its place: {_todo_of_files(findings, path)}"
    return f"`surgery rescue {path}` shows what is left, leaf by leaf"


def _todo_of_files(findings: Sequence[reports.Finding], path: str) -> str:
    files = [one for one in findings if one.what != ADDED_FOLDER]
    folders = {one.path for one in findings} - {one.path for one in files}
    empty = [one for one in folders if not any(file.path.startswith(f"{one}/") for file in files)]
    todo = [f"take {quoted(sorted(empty), 4, word='and')} away, where no file is"] if empty else []
    if files:
        is_more = all(one.what == ADDED for one in files)
        back = (
            "take the files away that were added" if is_more else "put the files back as they were"
        )
        anew = "" if is_more else " --anew"
        todo.append(f"{back}; `surgery seal {path}{anew}` records what is there, if that is meant")
    return "; ".join(todo)


def _with_older_steps(
    root: Path, rows: Sequence[reports.ExaminedPlace], found: Sequence[Condition]
) -> list[reports.ExaminedPlace]:
    """Where leaves of a step are lost: which whole step before it could give them."""
    whole = [one.place for row, one in zip(rows, found, strict=True) if row.state == State.WHOLE]

    def told(row: reports.ExaminedPlace, one: Condition) -> reports.ExaminedPlace:
        if not row.whole_leaves or row.whole_leaves == row.leaves:
            return row
        before = [place.path for place in reversed(whole) if place.is_before(one.place)]
        found = next((path for path in before if could_fill(str(path), one.left)), None)
        if found is None:
            return row
        place = root / row.path
        # a file of a run becomes a run: its own name is what Flax looks for; and nothing in it proves what is left
        is_file = filesystem.is_file(place)
        older, broken = quote(str(found)), quote(named_in_run(place) if is_file else str(place))
        new = new_place(place)
        is_partial = is_file or (one.left is not None and one.left.lost)
        partial = " --allow-partial" if is_partial else ""
        fill = f"`surgery rescue {broken} {new} --fill-from {older}{partial}` takes the rest from there"
        return replace(row, todo=f"{row.todo}; {fill}")

    return [told(row, one) for row, one in zip(rows, found, strict=True)]
