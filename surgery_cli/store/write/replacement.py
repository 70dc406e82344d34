"""What goes where as a new checkpoint, which stands whole beside an old one in a bucket, comes in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.meanwhile import written_meanwhile
from surgery_cli.store.write.built_files import names_below, written_to
from surgery_cli.store.write.commit_marks import companion_of, innermost_first, without_marks
from surgery_cli.store.write.inventory import take_inventory, versions_of
from surgery_cli.store.write.many_objects import each, objects_at


def check_put(destination: Path, guard: Guard) -> None:
    """The service told of each object that was put there which version it is: all these stand there, and nothing else.

    Nothing is looked up again that was since the last of them was put there.

    Raises:
        RemovedError: one is gone, or another by now, or something has come.
    """
    places = without_marks(path_at(name) for name in names_below(destination))
    record = companion_of(destination)
    # beside a folder, it is nobody's that this run knows
    if guard.has_made(record) and filesystem.is_file(record):
        places.append(record)
    others, gone = guard.unlike(places)
    if others or gone:
        raise written_to([*others, *gone], gone)


def may_have_put(destination: Path, guard: Guard) -> list[Path]:
    """What stands at a destination, and its record, as far as it may be of this run's making.

    Raises:
        OSError: nobody can tell.
    """
    standing = [*objects_at(destination), *objects_at(companion_of(destination))]
    return [place for place in standing if guard.may_have_made(place)]


class Replacement(NamedTuple):
    """Objects, in the order in which they go and come. It may be cut short anywhere, and carried out again.

    The old one's marks go first, the new one's come last: in between nobody takes a mixture for a checkpoint. So do the
    records of single files, which stand beside them: none tells of values that are not its own. What was built stays
    as it is, until whoever has the lock removes it.
    """

    destination: Path
    old: Sequence[Path]
    """What stands at the destination, and beside it of what tells of that."""
    first: Sequence[Path]
    """Marks and records of the old one: first that by which all of it is whole."""
    moved: dict[Path, Path]
    """From where it was built to where it goes."""
    record: dict[Path, Path]
    last: Sequence[Path]
    """Where the new one's marks go, innermost first."""

    @classmethod
    def of(
        cls, destination: Path, built: Path, objects: Iterable[Path], marks: Iterable[Path]
    ) -> Self:
        """``built``: the folder in which the new one stands under the name of the destination.

        ``objects`` are all that are in it, but for the new one's ``marks``.
        """
        old = objects_at(destination)
        first = innermost_first(old)[::-1]
        moved = {place: destination.parent / place.relative_to(built) for place in objects}
        last = [destination.parent / mark.relative_to(built) for mark in marks]
        companion = companion_of(built / destination.name)
        record = {new: moved.pop(new) for new in {companion} & moved.keys()}
        if destination in old or (old and record):  # what is not of the old one was refused before
            first += objects_at(companion_of(destination))
        return cls(destination, [*old, *first], first, moved, record, last)

    def take_inventory(self, built: Path) -> None:
        """Write down what is in ``built``, and what stands at the destination. Raises OSError."""
        stood = versions_of(self.destination.parent, self.old)
        take_inventory(built, [*self.moved, *self.record], stood)

    def is_begun(self, guard: Guard) -> bool | None:
        """False if it was cut short before anything of the old one went, or of the new one came; None: nobody knows."""
        try:
            for place in self.first[:1]:
                filesystem.status_now(place)
        except FileNotFoundError:
            return True
        except OSError:
            return None
        return guard.may_have_put

    def carry_out(self, guard: Guard, mark: Callable[[Path], None]) -> None:
        """Delete and copy, see that all stands as it was copied, and ``mark`` what is whole then.

        Raises:
            OSError: it cannot be done.
            DestinationError: something else has come to where something goes, which stays.
            RemovedError: what was copied is gone, or another, or something has come.
        """
        for place in self.first:
            if not filesystem.delete_as_found(place):
                raise written_meanwhile(self.destination, [place])
        each(filesystem.copy, self.moved.items())
        settled = {*self.first, *self.moved.values(), *self.last}
        each(filesystem.delete_as_found, ((place,) for place in self.old if place not in settled))
        each(filesystem.copy, self.record.items())
        filesystem.forget(self.destination)
        check_put(self.destination, guard)
        for place in self.last:
            mark(place)
