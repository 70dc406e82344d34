"""Of `inspect`, `verify` and `seal`: what is in a checkpoint, and what it was held against."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.document import Case, Noted, Suite
from surgery_cli.proof.record_parts import Assumed
from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.reports.findings import Finding, case_of, of_step
from surgery_cli.reports.layout import HostReads
from surgery_cli.words.notes import Note


class LeafRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A leaf as ``inspect`` shows it; ``bytes`` in memory, ``stored_bytes`` on disk."""

    path: str
    """A pattern that names the leaf; slashes inside keys are `%2F` where another leaf would be called alike."""
    kind: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    stored_bytes: int | None = None
    chunk_shape: tuple[int, ...] | None = None
    """The shape of a stored chunk, the least that can be decoded; None where the format has no chunks."""
    write_shape: tuple[int, ...] | None = None
    """The shape of what is stored and written whole: a shard of chunks, else a chunk."""
    type_text: str = ""
    spelling: str = ""
    """The keys where they are odd: a slash in one is `%2F`, a percent sign `%25`, all else as it is."""
    twin_of: str | None = None
    slot: str | None = None
    clock: str | None = None
    """What the clock drives, where the leaf is one."""
    drives: int = 0
    """How many slots depend on the clock."""
    hyperparameter: str | None = None
    """What the number means, where the optimizer keeps a setting on disk: ``learning_rate``."""
    value: int | float | bool | str | None = None
    """Of a clock or hyperparameter, with ``--optimizer``; of scalars and strings with ``--stats``."""
    statistics: LeafStatistics | None = None
    bad: list[str] = []
    """What is wrong with its values, with ``--stats`` and ``--only bad``."""
    digest: str | None = None
    grid: tuple[int, ...] | None = None
    """The block shape that the digest was taken over, so that any layout can be checked against it."""


class OptimizerState(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A state of the optimizer, as ``inspect --optimizer`` shows it: how many slots it keeps, by name."""

    path: str
    family: str
    slots: dict[str, int]
    unsure: str = ""
    """What settles the powers of its slots, where the metadata cannot tell."""


class Inspection(Noted, kw_only=True, frozen=True):
    """What ``inspect`` prints."""

    checkpoint: str
    """The argument, as resolved: an absolute path."""
    layout: str
    step: int | None
    steps: list[int]
    items: list[str]
    other_items: list[str]
    """Items that are not pytrees (metrics, JSON, …); carried along, never edited."""
    foreign_files: list[str]
    chosen: str
    """A sentence that says what was opened, and why."""
    only: str | None = None
    """``bad`` if all other leaves are left out, with ``--only bad``."""
    looked_at: int | None = None
    """How many leaves the others were left out of."""
    leaves: list[LeafRow]
    """Those that patterns name; all of them without patterns. Totals, ``parameters``, ``by_dtype`` are theirs."""
    all_leaves: int
    """How many leaves there are, named or not."""
    total_leaves: int
    total_bytes: int
    total_stored_bytes: int
    dead_bytes: int
    """Bytes in data files of the whole checkpoint that no leaf refers to."""
    parameters: int
    """Number of elements below the params root; 0 if there is none."""
    by_dtype: dict[str, int]
    """Bytes by dtype."""
    optimizer: list[OptimizerState] | None = None
    """The states of the optimizer, with ``--optimizer``."""
    states_in_question: list[str] = []
    """With ``--optimizer``, the states of which only the user can say whose they are; notes ask for it."""
    containers: dict[str, str] | None = None
    """The nodes above leaves that are no dicts, by their unambiguous paths (the root is ''), with ``--digests``."""
    hosts: HostReads | None = None
    """What the hosts of a mesh would read, with ``--layout``."""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""

    def __bool__(self) -> bool:
        raise TypeError(
            "what is in a checkpoint is neither true nor false: with `only='bad'`, `.leaves` are what is bad"
        )


class Sampled(msgspec.Struct, kw_only=True, frozen=True):
    """What a sample of ``verify`` read. Nothing is said of the rest."""

    asked: str
    """``5%``, or ``3/20``: the third of twenty turns, which together are everything."""
    seed: int | None = None
    """Of a share at random: with it, the same is drawn again."""
    bytes: int
    all_bytes: int
    """Of the values of all leaves, and, of a sealed checkpoint, of all files."""
    leaves: int
    """Leaves that were read whole."""
    leaves_in_part: int
    all_leaves: int
    leaves_without_digest: int
    """Of all, drawn or not: for these nothing could be compared."""
    files: int
    files_in_part: int
    all_files: int


class Verdict(Noted, kw_only=True, frozen=True):
    """What ``verify`` prints."""

    checkpoint: str
    named_step: int | UnsetType = UNSET
    """The step of a root, if the command named one."""
    address: str
    """Text that opens what was judged, whatever is saved meanwhile: of a root `ROOT@N`."""
    against: str
    agrees: bool
    findings: list[Finding]
    checked: int
    unchecked: int
    """Leaves that nothing was held against: they have no digest, or the other side does not name them."""
    agreeing: list[str] = []
    """The leaves of which nothing differs from what they were held against."""
    not_checked: list[str] = []
    files_checked: int = 0
    """Files that were held against a seal."""
    files_agreeing: list[str] = []
    infinities: dict[str, int] = {}
    """How many values of a leaf are infinite, for those that have any."""
    reads_values: bool = False
    """True where values were held against digests; else it was the structure against another's."""
    has_lost_digests: bool = False
    """True where there is a record of digests, and it does not hold itself."""
    strict: bool = False
    """True if leaves that have no digest keep it from being true."""
    sample: Sampled | None = None
    """With ``--sample``: how much was read, and ``agrees`` is said of that alone."""
    chosen: str = ""
    """Which step and item of the checkpoint was looked at, where there are steps."""
    chosen_against: str = ""
    """As ``chosen``, of the other side."""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
    spellings: dict[str, str] | UnsetType = UNSET
    """The keys of leaves with odd names, by these: a slash in one is `%2F`, a percent sign `%25`, all else as it is."""

    def __bool__(self) -> bool:
        """True if it agrees, and something was compared; of a strict one, every leaf."""
        is_compared = bool(self.checked or self.files_checked)
        return self.agrees and is_compared and not (self.strict and self.without_digest)

    @property
    def without_digest(self) -> int:
        """Leaves that nothing can be held against; of a sample, also those that were not drawn."""
        return self.unchecked if self.sample is None else self.sample.leaves_without_digest

    def suite(self) -> Suite:
        found = [case_of(finding) for finding in self.findings]
        known = {case.name for case in found}
        agree = (name for name in (*self.agreeing, *self.files_agreeing) if name not in known)
        cases = [*found, *(Case(name=name or ".") for name in agree)]
        unknown = "nothing was there to hold it against"
        cases += (
            Case(name=name or ".", outcome="skipped", what=unknown)
            for name in self.not_checked
            if name not in known
        )
        if self.sample is not None:
            rest = "what was not drawn is not looked at"
            cases.append(Case(name=f"sample {self.sample.asked}", outcome="skipped", what=rest))
        subject = of_step(self.checkpoint, self.named_step)
        return Suite("verify", subject, cases, judged=self.address)


class FileList(msgspec.Struct, kw_only=True, frozen=True):
    """A list of files with their digests, and the folder from which names in it count: `sha256sum -c` is run there."""

    file: str
    folder: str


class Seal(Noted, kw_only=True, frozen=True):
    """What ``seal`` prints."""

    checkpoint: str
    chosen: str
    record: str
    """The file that was written."""
    sha256sums: FileList | None = None
    """The list of files with their digests, if one was asked for."""
    leaves: int
    files: int
    bytes_read: int
    anew: list[str] = []
    """Leaves and files whose earlier digests did not hold, and were recorded anew."""
    notes: list[Note] = []
    """What `verify` finds wrong with metadata, with a seal or without."""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
