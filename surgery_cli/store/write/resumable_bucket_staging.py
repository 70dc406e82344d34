"""As ``resumable_staging``, in a bucket: what is built stays, with its lock, and a journal of an object an entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from surgery_cli.errors import DestinationError
from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import Lock, beside
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.write.aftermath import begin_anew, kept
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.bucket_staging import BucketStaging
from surgery_cli.store.write.built_files import Stood, raise_of_built
from surgery_cli.store.write.finishing import check_can_finish
from surgery_cli.store.write.inventory import (
    copy_with_inventory,
    first_changed,
    inventory_at,
    inventory_of,
    versions_of,
)
from surgery_cli.store.write.journal import Head, Journal, LinesInBucket, Lost, Placed, Whole
from surgery_cli.store.write.leftovers import is_over
from surgery_cli.store.write.many_objects import copy_below, delete_as_seen, objects_at
from surgery_cli.store.write.resumable_staging import (
    NOT_REFUSED,
    being_written,
    can_go_on,
    is_refused,
    what_is_kept,
)
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.invocation import the_same


class ResumableBucketStaging(BucketStaging):
    """As ``BucketStaging``; what is done is written down, and stays where the run is cut short."""

    journal: Journal

    def __init__(
        self,
        destination: BucketPath,
        linker: Linker,
        head: Head,
        leaves: Sequence[LeafPath],
        left: BucketLeftover | None,
        stood: Stood | None = None,
    ) -> None:
        """``left``: what an earlier run has kept, of the same ``head``; ``leaves``: those of the draft."""
        super().__init__(destination, linker, stood, beside=True)
        self._head = head
        self._leaves = leaves
        self._left = left
        self._folder: Path = self._beside.with_name(f"{self._beside.name}-journal")
        self._may_wake = False
        """True if the run that is taken over may not be over: what it writes then must be in nobody's way."""
        if left is not None:
            assert left.built is not None
            assert left.folder is not None
            assert left.journal is not None
            self.journal = left.journal
            self._replaces |= left.journal.whole is not None  # it had begun to take its place
            self._is_mixed = left.has_half_replaced
            self._may_wake = not is_over(left)
            if not self._may_wake:
                self._beside, self._folder = BucketPath(left.built), left.folder
        owner = msgspec.to_builtins(Owner.here())
        who: dict[str, Any] = {
            "run": self._token,
            "builds": str(self._built),
            "journal": str(self._folder),
        }
        # one that has put nothing there does not know what has come since
        self._has_put = (
            left is not None and left.built is not None and inventory_at(left.built) is not None
        )
        who["replaces"] = (
            not left.replaces_nothing if left is not None and self._has_put else self._replaces
        )
        who["marked"] = self._replaces_marked or (left is not None and left.replaces_marked)
        who["mixed"] = self._is_mixed
        self._lock = Lock(destination, json.dumps(who | owner).encode())

    def __enter__(self) -> Self:
        if self._left is None:
            super().__enter__()
            try:
                self.journal = Journal(LinesInBucket(self._folder))
                self.journal.note(self._head)
            except BaseException:
                self._withdraw()
                self._open.close()
                raise
        else:
            begin_anew()
            try:
                check_can_finish(self._left)
                self._take_over(self._left)
                self._keep_guard()
                self._hold_to_what_was_placed()
                if self.journal.placed is None:  # it was cut short before anything was computed
                    self._begin_anew(self._left)
            except BaseException as error:  # a signal, say: `__exit__` is not called then
                self._open.close()
                if isinstance(error, FileExistsError | FileNotFoundError | Replaced):
                    self._leave()
                    raise being_written(self._left) from None
                self._leave(self._left, error)
                raise
        self.journal.of(self._leaves)
        return self

    def _take_over(self, left: BucketLeftover) -> None:
        """Make what was left this run's. Of a run that may wake up it is copied first: its own names are lost then.

        Raises:
            FileExistsError: another run has it; or FileNotFoundError, Replaced: somebody still writes to it.
        """
        assert left.built is not None
        assert left.folder is not None
        placed = None
        if self._may_wake:
            assert left.journal is not None
            placed = left.journal.placed
            if placed is not None and first_changed(left.built, placed.versions) is not None:
                placed = None
            copy_with_inventory(left.built, self._beside)
            copy_below(left.folder, self._folder)
        self._lock.take_over(left.content)
        self.journal = Journal(LinesInBucket(self._folder))
        if placed is not None:
            self._note_placed(placed)  # the copies are others
        own_places = (self._beside, self._folder, inventory_of(self._beside).parent)
        for place in beside(self.destination) if self._may_wake else ():
            if place not in own_places:
                filesystem.delete_below(place)
        if left.is_marked:  # meanwhile
            self._lock.release()
            raise FileExistsError

    def _leave(
        self, left: BucketLeftover | None = None, error: BaseException | None = None
    ) -> None:
        """Where a run ends as it takes over: what is this run's by now stays, else what it had copied goes."""
        with uninterrupted():
            if not self._is_lost:
                self._say_kept(error)
            elif self._may_wake:
                with suppress(OSError):
                    self._remove_private()
            if left is not None and self._is_lost:
                assert left.journal is not None
                self._say_kept(error, left)

    def _remove_private(self) -> None:
        super()._remove_private()
        filesystem.delete_below(self._folder)

    def begun(self, placed: Placed) -> None:
        self._note_placed(placed)

    def _note_placed(self, placed: Placed) -> None:
        """All that stands there is not written again, but for what says what is in a database."""
        objects = [place for place in objects_at(self._beside) if place.name != MANIFEST]
        versions = versions_of(self._beside, objects)
        if placed.versions:  # what was written since does not count
            versions = {name: versions[name] for name in placed.versions if name in versions}
        self.journal.note(msgspec.structs.replace(placed, versions=versions))

    def _hold_to_what_was_placed(self) -> None:
        """Blocks are read back by who goes on; what was copied beside them counts as long as it is what was copied."""
        if (placed := self.journal.placed) is None:
            return
        if (changed := first_changed(self._beside, placed.versions)) is not None:
            self.journal.note(Lost(f"'{changed}' is another than what was put there"))

    def _check_old(self) -> None:
        """Of what an earlier run has begun to put there, a last request may still have come."""
        if self._left is not None and inventory_at(self._beside) is not None:
            check_can_finish(self._left, self._beside)
        else:
            super()._check_old()

    def _begin_anew(self, left: BucketLeftover) -> None:
        """Nothing of what was built is taken; what was put of it in the place of nothing is of no use either."""
        if left.replaces_nothing and inventory_at(self._beside) is not None:
            put = objects_at(self.destination)
            check_can_finish(left, self._beside, put)
            delete_as_seen(put, self._guard)
            filesystem.delete(inventory_of(self._beside))
        filesystem.delete_below(self.new)

    def _begin_to_replace(self) -> None:
        self._has_put = True
        self.journal.note(Whole())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        goes_on = self._is_mixed or (error is not None and can_go_on(self.journal, error))
        if error is not None and not self._is_whole and goes_on:
            with uninterrupted(), self._open:
                self._linker.wait()
                if self._is_lost:
                    self._yield(error)
                else:
                    self._say_kept(error)
                    raise_of_built(self._built, error)
            return
        super().__exit__(kind, error, traceback)

    def _release(self) -> None:
        """The journal goes after all that it speaks of, and before the lock that says where it is."""
        with suppress(OSError):
            filesystem.delete_below(self._folder)
        super()._release()

    @property
    def _is_lost(self) -> bool:
        """True if it is known that another run has the lock, or nobody."""
        try:
            return not self._lock.is_held()
        except OSError:
            return False

    def _say_kept(self, error: BaseException | None, left: BucketLeftover | None = None) -> None:
        """``left``: where that stays as it is, and nothing of this run does."""
        place, journal = (self._built, self.journal) if left is None else (left.path, left.journal)
        assert journal is not None
        # a mixture is what `clean` makes whole
        may_go = not self._is_mixed and not self._is_finished_by_clean
        is_held_up = isinstance(error, DestinationError) or isinstance(
            error and error.__cause__, DestinationError
        )
        is_for_good = is_held_up and (self._has_put or self._stood is None)
        once = f"once what else was written to '{self.destination}' is gone" * is_for_good
        once = once or NOT_REFUSED * is_refused(error)
        kept.append(
            what_is_kept(place, self.destination, journal, the_same(), once=once, may_go=may_go)
        )

    @property
    def _is_finished_by_clean(self) -> bool:
        """True if `clean` will take what stands there for half replaced: an old one that was removed meanwhile, say."""
        with suppress(OSError):
            filesystem.forget(self.destination)
            return BucketLeftover(self.destination).has_half_replaced
        return False
