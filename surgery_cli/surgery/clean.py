"""Clean: remove what killed runs have left, or finish it, and nothing that a living one is writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from surgery_cli import reports
from surgery_cli.errors import PlanError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import reading, removal_of
from surgery_cli.store.filesystem.names import destination_of
from surgery_cli.store.filesystem.owners import is_staging, owner_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.locate.argument import path_and_step
from surgery_cli.store.write.aftermath import begin_anew, remaining_notes, set_aside
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.commit_marks import companion_of
from surgery_cli.store.write.dead_in_buckets import bucket_leftovers
from surgery_cli.store.write.finishing import check_can_finish, finish
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.leftovers import (
    Left,
    Leftover,
    drafts_of,
    is_over,
    leftovers_in,
    leftovers_of,
)
from surgery_cli.store.write.resumable_staging import amount_of, goes_on
from surgery_cli.store.write.set_aside import set_aside_of
from surgery_cli.store.write.strays import strays
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text


def clean(place: str, *, stale: bool = False, dry_run: bool = False) -> reports.Cleaning:
    """Remove the staging directories that runs to ``place``, or to something in it, have left.

    Only where the run is known to be dead: its process is gone from this machine. ``stale`` says that those of other
    machines, and those whose owner cannot be told, are over as well. A living run's is never removed. What in a bucket
    has half replaced something, and alone is whole, is put in its place.

    Raises:
        PlanError: a step is named, or it is empty text.
        DestinationError: what is half replaced was written to by something else since.
        WriteError: something cannot be removed, or put in its place.
    """
    if not place:
        raise PlanError(
            "the path is empty", fix="name a destination, or the directory it stands in"
        )
    begin_anew()
    text = address(place)
    path = path_at(text)
    _check_name(text, path)
    over = {State.DEAD, State.ELSEWHERE, State.UNKNOWN} if stale else {State.DEAD}
    removed: list[reports.LeftoverRow] = []
    finished: list[reports.LeftoverRow] = []
    kept: list[reports.LeftoverRow] = []
    notes: list[Note] = []
    for left in _leftovers(path):
        state = left.state
        row = _row(left, state)
        if state is State.WHOLE:
            if isinstance(left, BucketLeftover) and (stale or is_over(left)):
                finished.append(row)
                (check_can_finish if dry_run else finish)(left)
            else:
                kept.append(row)
        elif state not in over:
            kept.append(row)
        elif dry_run or left.remove():
            removed.append(row)
            notes += _of_what_stays(left)
    return reports.Cleaning(
        path=str(path),
        removed=removed,
        finished=finished,
        kept=kept,
        dry_run=dry_run,
        notes=[*notes, *remaining_notes(), *_notes(path, kept)],
    )


def _of_what_stays(left: Left) -> list[Note]:
    """Where the run had begun to put what it built at its destination, and something of another program is there."""
    if not isinstance(left, BucketLeftover) or left.stays is None:
        return []
    if left.stays == companion_of(left.destination):
        said = f"'{left.stays}' stays: it is no record that a run has written"
        return [Consequence(DocsPage.HOW_IT_WRITES, said)]
    said = (
        f"what the run had put at '{left.destination}' stays, for '{left.stays}' is not its own: see what stands there,"
        f" and remove it if nothing saves there: `{removal_of(left.destination)}`"
    )
    return [Consequence(DocsPage.RESUME, said)]


def _check_name(text: str, path: Path) -> None:
    """A step's number is no name: what was left of step 7 stands under names of its own."""
    root, *_ = path_and_step(text, None)
    if root != path and filesystem.is_folder(root):
        raise PlanError(
            f"'{path}' names a step, not a file or directory",
            why="what killed runs have left is looked for by the names of files",
            fix=f"`surgery clean {quote(str(root))}` looks at all steps that stand there",
        )


def _leftovers(path: Path) -> Sequence[Left]:
    """Those that ``path`` names: one itself, those of runs to it, and those that stand in it."""
    if isinstance(path, BucketPath):
        with reading(path):
            return [*bucket_leftovers(path), *strays(path)]
    if is_staging(path.name) and filesystem.is_taken(path):
        return [Leftover(path, owner_of(path))]
    inside = leftovers_in(path) if filesystem.is_folder(path) else []
    return [*leftovers_of(path), *drafts_of(path), *inside]


def _row(left: Left, state: State) -> reports.LeftoverRow:
    owner, journal = left.owner, left.journal
    keeps = ""
    if journal is not None and journal.head is not None and state is not State.LIVING:
        keeps = f"{amount_of(journal)}; {goes_on(left)}"
    return reports.LeftoverRow(
        path=str(left.path),
        state=str(state),
        bytes=left.bytes,
        host=owner.host or None if owner else None,
        pid=owner.pid if owner else None,
        keeps=keeps,
    )


def _notes(path: Path, kept: list[reports.LeftoverRow]) -> list[Note]:
    notes: list[Note] = []
    folder = filesystem.absolute(path).parent
    if not isinstance(path, BucketPath) and not filesystem.exists(folder):
        notes.append(Remark(DocsPage.HOW_IT_WRITES, f"'{folder}' does not exist"))
    if any(row.state in (State.ELSEWHERE, State.UNKNOWN) for row in kept):
        size = byte_text(sum(row.bytes for row in kept if row.state != State.LIVING))
        notes.append(
            Consequence(
                DocsPage.RESUME,
                f"whether the others still run cannot be told from here; if they are over, `--stale`"
                f" removes them ({size})",
            )
        )
    for row in kept:
        if row.state not in (State.WHOLE, State.LOST):
            continue
        if (mixture := half_replaced(destination_of(path_at(row.path)))) is not None:
            said = f"{mixture.what}: {mixture.why}; {mixture.fix}"
            notes.append(Consequence(DocsPage.FORCE, said))
    if not isinstance(path, BucketPath) and (old := set_aside_of(path)) not in {None, *set_aside}:
        fate = (
            "stays until you remove it"
            if filesystem.exists(path)
            else "is restored by the next run to it"
        )
        notes.append(
            Consequence(
                DocsPage.FORCE,
                f"'{old}' is what stood there before an interrupted `--force`, or what else came to that; it {fate}",
            )
        )
    return notes
