"""What the argument that names a checkpoint asks for: `CKPT`, `CKPT@N`, `CKPT@latest`, with `--step` and `--item`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.errors import CheckpointError, DestinationError, PlanError
from surgery_cli.inputs.addresses import address as address_in
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.names import StepName
from surgery_cli.store.locate import refusals
from surgery_cli.store.locate.steps import steps_at

_LATEST: Final = "@latest"
WITH_STEP: Final = re.compile(r"(.+)@([0-9]{1,18}|latest)/*", re.DOTALL)
"""Behind the step may be what shells complete behind the name of a folder."""


class Argument(NamedTuple):
    """An argument whose path stands on this disk, and what the options add.

    ``path`` is real. ``link`` is what to say of the argument's own symbolic link, and ``address`` what stands before
    ``@N`` if it names a step so; both else ''.
    """

    text: str
    path: Path
    step: int | None
    item: str | None
    link: str
    address: str
    is_staged: bool = False
    """True for what is being built: what says that it is whole comes last."""
    is_latest: bool = False
    """True if the newest step is asked for by name: only a root has one."""

    @classmethod
    def read(
        cls, text: str, step: int | None, item: str | None, *, is_staged: bool = False
    ) -> Argument:
        """Find the path that ``text`` names.

        Raises:
            PlanError: nothing stands there, or ``step`` and ``@N`` disagree.
            CheckpointError: the path cannot be looked at, or is an address of elsewhere.
        """
        text = address_in(text, refusal=CheckpointError)
        if not text:
            raise PlanError("the path is empty", fix="name a checkpoint's directory or file")
        try:
            path, step, is_latest = path_and_step(text, step)
            real = filesystem.real(path)
            if not is_staged:  # who builds has just looked
                filesystem.forget(real, but_begun=True)
                filesystem.look_ahead(real, around=True)
            is_link, is_there = filesystem.is_link(path), filesystem.exists(real)
        except OSError as error:
            raise unreadable(path_at(text), error) from None
        except (ValueError, RuntimeError) as error:  # a null character; a circle of links
            raise PlanError(f"'{text}' is not a path", why=str(error)) from None
        if not is_there:
            raise refusals.missing(real if is_link else filesystem.absolute(path))
        refuse_special(path)
        link = f"'{text}' → '{real}': " if is_link else ""
        address = text.rpartition("@")[0] if path != path_at(text) else ""
        return cls(text, real, step, item, link, address, is_staged, is_latest)

    def refuse_another_step(self, step: StepName | None) -> None:
        """Refuse a wish for another step than the one that the path is."""
        if self.is_latest:
            raise PlanError(
                f"'{self.text}' has no newest step",
                why=f"it is step {step.number} itself"
                if step
                else "it is one checkpoint, without steps",
                fix=f"leave `{_LATEST}` out, or name the directory that holds the steps",
            )
        if self.step is not None and (step is None or step.number != self.step):
            raise PlanError(
                f"'{self.text}' does not hold step {self.step}",
                why=f"it is step {step.number} itself"
                if step
                else "it is one checkpoint, without steps",
                fix="leave the step out, or name the directory that holds the steps",
            )

    def refuse_item(self) -> None:
        """Refuse a wish for an item where nothing has one."""
        if self.item is not None:
            raise PlanError(
                f"there is no item '{self.item}' in '{self.text}'",
                why="it holds one tree without a name",
                fix="leave `--item` out",
            )


def path_and_step(text: str, step: int | None) -> tuple[Path, int | None, bool]:
    """Split ``CKPT@N`` and ``CKPT@latest`` unless a path of that very name exists; whether it is the latter."""
    path = path_at(text)
    found = WITH_STEP.fullmatch(text)
    is_bucket = isinstance(path, BucketPath) and not path.key  # no bucket has an @ in its name
    if found is None or (not is_bucket and filesystem.exists(path)):
        return path, step, False
    named = None if found[2] == "latest" else int(found[2])
    if step is not None and step != named:
        raise PlanError(
            f"'{text}' and `--step {step}` name two different steps",
            why="'@latest' is the newest finished one"
            if named is None
            else f"'@{named}' already says step {named}",
            fix=f"say `{found[1]}@{step}`, or leave one of the two out",
        )
    return path_at(found[1]), named, named is None


def refuse_step_of_run(text: str, *, may_renumber: bool = True) -> None:
    """Refuse a name of what is to be made that reads as a step of a run: read again, it would be taken for that step.

    ``may_renumber``: the command has an ``--as-step``.

    Raises:
        DestinationError: what stands before `@N` or `@latest` is a directory of steps.
    """
    found = WITH_STEP.fullmatch(text)
    if found is None:
        return
    run, is_numbered = found[1], found[2] != "latest"
    if steps_at(path_at(run)):
        raise _is_step_of_run(text, run, found[2] if is_numbered else "NEW", may_renumber)


def _is_step_of_run(text: str, run: str, step: str, may_renumber: bool) -> DestinationError:
    """The error for a step of a run that is there; ``step`` is its number, or NEW."""
    own = path_at(run) / step
    way = f"for a step of the run: name '{run}', with `--as-step {step}`"
    if not may_renumber:
        way = (
            ""
            if step == "NEW" or filesystem.is_taken(own)
            else f"for a step of the run: name '{own}'"
        )
    return DestinationError(
        f"'{text}' names a step of the run '{run}', and would be a directory beside it",
        why=f"every later command that says '{text}' would read that directory in the place of the step",
        fix=f"{way}; else name another place" if way else "name another place",
    )
