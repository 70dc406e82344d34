"""A run on many hosts: every process makes the same draft and a share of its values; the first brings all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.checks import refuse_breaches
from surgery_cli.engine.digests import Digester, LeafDigest
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.shared_execution import SharedExecution
from surgery_cli.errors import DestinationError, PlanError
from surgery_cli.hosts.lives import PATIENCE_WITH_CALLS_SECONDS
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.operations.map import Map
from surgery_cli.planning import Plan
from surgery_cli.script.user_calls import Call
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.request_counts import Requests, requests_so_far
from surgery_cli.store.write.aftermath import is_unknown, unknown
from surgery_cli.store.write.shared_step import SharedStepWriter
from surgery_cli.surgery.agreement import agree
from surgery_cli.surgery.host_shares import share_of
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.lists import listed

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership

_Span = list[tuple[int, int]]
_Checked = dict[str, list[tuple[int, list[tuple[tuple[int, ...], bytes]]]]]


class _Outcome(msgspec.Struct):
    """What a process did, for the first one; leaves by their places in the draft and in the sources."""

    digests: list[tuple[int, LeafDigest]]
    parts: list[tuple[int, list[tuple[_Span, bytes]]]]
    cut: list[tuple[int, tuple[int, ...], list[tuple[tuple[int, ...], bytes]]]]
    written_bytes: int
    read_bytes: int
    raw_bytes: int
    seen: list[list[list[tuple[tuple[int, ...], Any]]]]
    checked: _Checked
    calls: list[tuple[Call, str]]


class Company:
    """The processes of a run as one of them sees them, and its share of the work."""

    def __init__(self, membership: Membership, prepared: Prepared, destination: Path) -> None:
        """For a draft, which all of them have made."""
        self.membership = membership
        self.share = share_of(prepared, membership.number, membership.count)
        self.read_bytes = self.raw_bytes = 0
        """What the others have read of values, and copied as it is encoded; known once all is written."""
        self.judging_bytes: int | None = None
        """The least memory that one of them may use, once all have told theirs."""
        self.requests = Requests()
        """What the others have asked of services, known once all is read back."""
        self._destination = destination
        self._draft = prepared.draft
        self._sources = prepared.sources
        self._calls = prepared.functions.calls
        self._paths = list(prepared.draft.leaves)

    @classmethod
    def met(
        cls,
        membership: Membership,
        prepared: Prepared,
        plan: Plan,
        destination: Path,
        options: Options,
    ) -> Company:
        """Once all are about to do the same.

        Raises:
            PlanError: they are not.
        """
        company = cls(membership, prepared, destination)
        # the first process may build as soon as it has heard of all, and this one is not back from that yet
        if not membership.is_first:
            is_unknown(f"process 0 says whether anything is left at '{destination}'")
        is_locked = not filesystem.renames(destination)
        before = " (with `--stale` from another machine), before which a new start is refused"
        membership.left_by_first = (
            f"what it had built may stand beside '{destination}': {company.cleaning} removes that,"
            f" or finishes what was half in its place{before if is_locked else ''}; what was complete stays, and a new"
            " start says that it exists"
        )
        try:
            agree(membership, prepared, plan, destination, options)
        except PlanError:  # which all of them see alike: nobody builds
            unknown.clear()
            raise
        # each has its own: what is judged is cut by the least, so that all cut it alike
        own = bytes_to_use(options.memory_bytes)
        company.judging_bytes = min(map(int, membership.gather("memory", str(own).encode())))
        return company

    @property
    def cleaning(self) -> str:
        """The command that removes what was left at the destination."""
        return f"`surgery clean {quote(str(self._destination))}`"

    # ---- in the first process

    def place(self, directory: Path) -> None:
        """Tell the others where to build."""
        self.membership.tell("place", str(directory).encode())

    def execute(self, execution: SharedExecution, writer: SharedStepWriter) -> Executed:
        """As ``Execution.run``, with all others; what they have written is referred to then.

        Raises:
            SurgeryError: what ``Execution.run`` raises.
        """
        writers = list(writer.items.values())
        execution.judge(writers)
        for outcome in self._gathered("judged"):
            execution.checks.take_over(outcome.seen)
        refuse_breaches(execution.checks.findings())
        done = Executed()
        specs = {path: leaf.spec for path, leaf in self._draft.leaves.items()}
        done.join(execution.write(writers), specs)
        for outcome in self._gathered("written"):
            done.join(self._executed(outcome), specs)
            execution.checks.take_over(outcome.seen)
            for name, leaves in outcome.checked.items():
                tree = list(self._sources[name].tree)
                read = {tree[number]: dict(blocks) for number, blocks in leaves}
                execution.checked[name].take_over(read)
            self.read_bytes += outcome.read_bytes
            self.raw_bytes += outcome.raw_bytes
        writer.merge(self.share.count, self.share.makes)
        return done

    def merged(self) -> None:
        """Tell the others that all arrays are in their place: each reads back what it has written."""
        self.membership.tell("merged", b"")

    def wait_until_read_back(self) -> None:
        """All have; from now on nothing of them is needed."""
        for asked in self.membership.gather("read back")[1:]:
            self.requests += msgspec.msgpack.decode(asked, type=Requests)
        self.membership.settle()

    def _gathered(self, key: str) -> list[_Outcome]:
        given = self.membership.gather(key)[1:]
        found = [msgspec.msgpack.decode(one, type=_Outcome) for one in given]
        for outcome in found:
            self._calls.take_over(outcome.calls)
        return found

    def _executed(self, outcome: _Outcome) -> Executed:
        paths = self._paths
        done = Executed(
            digests={paths[number]: digest for number, digest in outcome.digests},
            parts={paths[number]: _blocks(blocks) for number, blocks in outcome.parts},
            written_bytes=outcome.written_bytes,
        )
        for number, grid, blocks in outcome.cut:
            path = paths[number]
            done.cut[path] = Digester(self._draft.leaves[path].spec, grid)
            done.cut[path].blocks.update(blocks)
        return done

    # ---- in the others

    def wait_for_place(self) -> Path:
        """Where the first process builds, which this one must see as well.

        Raises:
            DestinationError: it does not.
        """
        directory = path_at(self.membership.hear("place").decode())
        filesystem.forget(directory)
        if not isinstance(directory, BucketPath) and not filesystem.exists(directory.parent):
            raise DestinationError(
                f"'{directory.parent}', which process 0 has made, is not there",
                why="the destination has to lie where all hosts write to: on a disk that they share, or in a bucket",
                fix="name a destination on one",
            )
        return directory

    def take_part(self, execution: SharedExecution, writer: SharedStepWriter) -> Executed:
        """Make this process's share, and tell the first one what was done."""
        writers = list(writer.items.values())
        execution.judge(writers)
        self._give("judged", execution, Executed(), 0)
        done = execution.write(writers)
        self._give("written", execution, done, sum(one.raw_bytes for one in writers))
        self.membership.hear("merged")
        return done

    def has_read_back(self) -> None:
        """Tell that what this process has written is in its place as it was computed, and wait for the end."""
        self.membership.give("read back", msgspec.msgpack.encode(requests_so_far()))
        self.membership.wait_for_end()

    def _give(self, key: str, execution: SharedExecution, done: Executed, raw_bytes: int) -> None:
        places = {path: number for number, path in enumerate(self._paths)}
        checked: _Checked = {}
        for name, source in execution.checked.items():
            if seen := source.seen():
                tree = {path: number for number, path in enumerate(self._sources[name].tree)}
                checked[name] = [
                    (tree[path], list(blocks.items())) for path, blocks in seen.items()
                ]
        outcome = _Outcome(
            digests=[(places[path], digest) for path, digest in done.digests.items()],
            parts=[(places[path], _spans(blocks)) for path, blocks in done.parts.items()],
            cut=[(places[p], cut.grid, list(cut.blocks.items())) for p, cut in done.cut.items()],
            written_bytes=done.written_bytes,
            read_bytes=execution.read_bytes,
            raw_bytes=raw_bytes,
            seen=execution.checks.seen(),
            checked=checked,
            calls=self._calls.seen(),
        )
        self.membership.give(key, msgspec.msgpack.encode(outcome))


_Blocks = list[tuple[Window, bytes]]


def _spans(blocks: Sequence[tuple[Window, bytes]]) -> list[tuple[_Span, bytes]]:
    return [([(one.start, one.stop) for one in window], digest) for window, digest in blocks]


def _blocks(spans: Sequence[tuple[_Span, bytes]]) -> _Blocks:
    return [(tuple(slice(*one) for one in span), digest) for span, digest in spans]


def be_patient(membership: Membership | None, plan: Plan, options: Options) -> None:
    """Where code of the user's runs: it may keep the thread waiting that says that this process lives."""
    calls = options.like_init is not None or options.probe is not None
    if membership is not None and (calls or any(isinstance(edit, Map) for edit in plan.edits)):
        membership.patience_seconds = PATIENCE_WITH_CALLS_SECONDS


def refuse_alone(options: Options, membership: Membership | None) -> None:
    """See that a run on many hosts has been begun as one.

    Raises:
        PlanError: it has not: `surgery.apply` was called by a program, whose own processes ours must not end.
    """
    if options.distributed and membership is None:
        raise PlanError(
            "`distributed` is for the command `surgery`",
            why="its processes end each other, and the program that calls this function with them",
            fix="start `surgery ... --distributed` from the program, on every host",
        )


@contextmanager
def ending_others_first(company: Company | None) -> Iterator[None]:
    """Where the block fails: the others have left before what it built is removed, and write no more to it."""
    try:
        yield
    except BaseException as error:
        if company is not None:
            company.membership.fail(error)
            if unseen := company.membership.end_others():
                are = "process" if len(unseen) == 1 else "processes"
                is_unknown(
                    f"what was built is removed; should {are} {listed(sorted(unseen), word='and')} still run,"
                    f" {company.cleaning} removes what is written from now on"
                )
        raise
