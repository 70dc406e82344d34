"""`--resume` of a run that is over: the result stands, and nothing is left to be done, if it is what would be made."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from surgery_cli import reports
from surgery_cli.errors import DestinationError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.planning import Plan
from surgery_cli.proof.surgery_json import Record
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, reading
from surgery_cli.store.locate.steps import steps_at
from surgery_cli.store.write.commit_marks import is_whole
from surgery_cli.store.write.dead_in_buckets import dead_at, leftovers_at
from surgery_cli.surgery.made_otherwise import Other, seen_there, step_made
from surgery_cli.surgery.named_steps import name_steps_read
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.previews import previewed
from surgery_cli.surgery.traffic import Traffic
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage


def finished_before(
    target: Path,
    prepared: Prepared,
    plan: Plan,
    options: Options,
    taken: DestinationError | None = None,
) -> reports.Report | None:
    """With ``--resume``, the report where an earlier run has finished what this very command makes; else None.

    The record says so: of the same draft, so of the same sources, of the same rules and under the same settings; and
    what stands there has the structure of it. With `--force` that is not enough: values may be damaged, for which the
    result is replaced.

    Raises:
        DestinationError: something of what stands there, or of what was asked for or read, is another; it says what.
            Of a step that is ``taken`` nothing is replaced.
        CheckpointError: some of what stands there could not be looked at, which tells nothing of it.
    """
    if not options.resume or options.force:
        if taken is not None:
            raise taken
        return None
    name_steps_read(prepared, target)
    filesystem.forget(target)
    seen = None
    with reading(target, is_destination=True):
        if is_whole(target) and not _is_kept_from(target, options):
            seen = seen_there(target, prepared, plan, options)
    if isinstance(seen, Other):
        if taken is None and _has_kept(target):  # which is said where that is looked for
            return None
        if taken is not None:
            raise _in_its_run(target, seen, taken)
        raise _made_otherwise(target, seen, _steps_beside(target, prepared, options))
    if seen is None:
        if taken is not None:
            raise taken
        return None
    return _done(target, seen, prepared, plan, _steps_beside(target, prepared, options))


def _in_its_run(target: Path, other: Other, taken: DestinationError) -> DestinationError:
    """The error for a step that stands in its own run, and is not what is to be made: nothing is replaced there."""
    problem = taken.problems[0]
    return DestinationError(
        problem.what,
        why=f"'{target.name}' is complete, and is not what this command would make: {other.why}",
        fix=", or ".join(filter(None, (other.back, problem.fix))),
    )


def _made_otherwise(target: Path, other: Other, beside: dict[str, int]) -> DestinationError:
    """The error for what stands there and is not what is to be made; ``beside``: other steps, of a training since."""
    what = f"'{target}' is complete, and was made otherwise than this command would"
    fix = other.fix or f"add `--force` to make it anew, or {other.back}"
    if beside:
        ways = ", or ".join(filter(None, ("name another destination", other.back)))
        fix = f"{ways}; `--force` would remove {_steps(beside)} there as well"
    return DestinationError(other.what or what, why=other.why, fix=fix)


def _steps_beside(target: Path, prepared: Prepared, options: Options) -> dict[str, int]:
    """The finished steps, by name, that stand in a run at the destination beside the one that this run makes."""
    made = step_made(prepared.checkpoint.location, options)
    if made is None or not filesystem.is_folder(target):
        return {}
    found = (step for step in steps_at(target) if step.is_finished)
    return {step.name: step.number for step in found if step.number != made}


def _steps(beside: dict[str, int]) -> str:
    numbers = [str(number) for number in beside.values()]
    return f"{'step' if len(numbers) == 1 else 'steps'} {listed(numbers, 8, word='and')}"


def _done(
    target: Path, record: Record, prepared: Prepared, plan: Plan, beside: dict[str, int]
) -> reports.Report:
    more = f"; {_steps(beside)} beside it {'is' if len(beside) == 1 else 'are'} of others"
    said = Remark(
        DocsPage.RESUME,
        f"'{target}' is complete: an earlier run of this command has finished it (its values were not read"
        f" again){more * bool(beside)}",
    )
    preview = previewed(prepared, plan, str(target), Traffic(0, 0, 0, 0), [said])
    digests = {name: one.digest for name, one in record.digests.items()}
    return reports.Report.of(
        preview,
        is_repeated=True,
        verified=True,
        digests={leaf.path: digests[leaf.path] for leaf in preview.leaves if leaf.path in digests},
        seconds=0.0,
        shared_files=len(shared := _linked(target, beside)),
        shared=shared,
        checked=0,
    )


def _linked(target: Path, beside: Collection[str]) -> list[str]:
    """The files that are hard links, by their names in the result, but for those in steps ``beside`` it."""
    if isinstance(target, BucketPath) or not filesystem.is_folder(target):
        return []
    names = (name for name, _ in files_below(target) if name.partition("/")[0] not in beside)
    return sorted(name for name in names if filesystem.status(target / name).st_nlink > 1)


def _is_kept_from(target: Path, options: Options) -> bool:
    """True if a run to a bucket may not be over, or has kept what goes on; one that is done but for its lock has not.

    On a disk a result gets its name at once, and what is kept beside it is of another run.
    """
    if not isinstance(target, BucketPath):
        return False
    return len(leftovers_at(target, anew=True)) > len(dead_at(target, stale=options.stale))


def _has_kept(target: Path) -> bool:
    """True if a run has kept something of that destination, which then is another's."""
    return any(left.journal is not None for left in leftovers_at(target, anew=True))
