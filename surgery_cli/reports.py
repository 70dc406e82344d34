"""The documents that commands print: one struct per command, whose fields are the keys of ``--json``."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.errors import Problem

SCHEMA_VERSION = 1


class Document(msgspec.Struct, kw_only=True):
    """Base of every document; ``schema_version`` rises when a key changes its meaning."""

    schema_version: int = SCHEMA_VERSION


class Failure(Document, kw_only=True):
    """What ``--json`` prints when a command fails."""

    problems: list[Problem]


class Statistics(msgspec.Struct, kw_only=True):
    """Statistics of a leaf's values; floats, NaN and infinities as strings in JSON.

    ``mean``, ``std``, ``min``, ``max`` are over finite values; ``norm`` is the Frobenius norm of them. ``zeros`` and
    ``non_finite`` are counts. ``histogram`` has equal bins from ``min`` to ``max``.
    """

    mean: float
    std: float
    min: float
    max: float
    norm: float
    zeros: int
    non_finite: int
    histogram: list[int]


class LeafRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A leaf as ``inspect`` shows it; ``bytes`` in memory, ``stored_bytes`` on disk."""

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    stored_bytes: int | None = None
    type_text: str = ""
    spelling: str = ""
    """The unambiguous path, where it differs from ``path``."""
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
    statistics: Statistics | None = None
    digest: str | None = None
    grid: tuple[int, ...] | None = None
    """The block shape that the digest was taken over, so that any layout can be checked against it."""


class OptimizerState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A state of the optimizer, as ``inspect --optimizer`` shows it: how many slots it keeps, by name.

    ``unsure`` says what settles the powers of its slots, where the metadata cannot tell.
    """

    path: str
    family: str
    slots: dict[str, int]
    unsure: str = ""


class Inspection(Document, kw_only=True):
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
    leaves: list[LeafRow]
    total_leaves: int
    total_bytes: int
    total_stored_bytes: int
    dead_bytes: int
    """Bytes in data files that no leaf refers to."""
    parameters: int
    """Number of elements below the params root; 0 if there is none."""
    by_dtype: dict[str, int]
    """Bytes by dtype."""
    optimizer: list[OptimizerState] | None = None
    """The states of the optimizer, with ``--optimizer``."""
    notes: list[str] = []


class ChangedLeaf(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"from_": "from"}):
    """An output leaf that is not an untouched copy. ``before`` and ``after`` are like ``float32[3,4]``."""

    path: str
    from_: str | None
    operations: list[str]
    before: str | None
    after: str
    policy: str | None = None
    twin_of: str | None = None
    moved: bool = False
    digest: str | None = None


class EditLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the text preview: an edit, how many leaves it names, how many twins follow and how."""

    operation: str
    summary: str
    """E.g. ``params/Dense_1/kernel by 0.5``."""
    leaves: int
    twins: dict[str, int] = {}
    """How many twins by policy: ``{"transform": 2}``."""
    bytes: int = 0
    """Bytes in memory of the leaves whose values change."""


class Preview(Document, kw_only=True):
    """What ``plan`` and ``--dry-run`` print. All counts of bytes are estimates from metadata, named as such."""

    source: str
    destination: str | None
    draft: str
    strategy: str
    """``copy-on-write`` or ``compact``."""
    strategy_reason: str
    edits: list[EditLine]
    leaves: list[ChangedLeaf]
    removed: list[str]
    by_reference: int
    bytes_read: int
    bytes_written: int
    bytes_linked: int
    bytes_copied: int
    notes: list[str]
    """Sentences: twins kept because their power is not sure, values that remain in the files, …"""
    chosen: str = ""


class Report(Preview, kw_only=True):
    """What ``apply`` and the edit commands print. Bytes are as counted."""

    verified: bool
    digests: dict[str, str]
    seconds: float
    shared_files: int
    """How many files source and destination share on disk: a hard link is no backup."""
    shared: list[str] = []
    """Their names, relative to the destination."""
    checked: int
    """Edited leaves that were read back and compared."""


class Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A leaf that differs. ``max_abs`` and ``max_rel`` compare values where shapes agree; None otherwise."""

    path: str
    what: str
    """``values``, ``shape``, ``dtype``, ``kind``, ``container``."""
    a: str
    b: str
    differing: int | None = None
    size: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    where: tuple[int, ...] | None = None
    """Index of the largest absolute difference."""


class Difference(Document, kw_only=True):
    """What ``diff`` prints."""

    a: str
    b: str
    only_in_a: list[str]
    only_in_b: list[str]
    changed: list[Change]
    equal: int
    """Leaves that agree."""
    equal_by_reference: int
    """Of these, how many refer to the same stored bytes, so that no value was read."""
    structure_only: bool


class Finding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that ``verify`` found: a damaged leaf, or a disagreement with what it was held against."""

    path: str
    what: str
    here: str = ""
    there: str = ""
    effect: str = ""
    """What Orbax's restore makes of it, where the tree was held against a training script."""
    leaves: int = 1
    """How many leaves are concerned; a subtree is one finding."""
    twins: list[str] = []
    """Nodes of the optimizer state with the same fault, which follow the edit."""
    edits: list[dict[str, Any]] = []
    """Edits of a plan that mend it, tried out on the metadata."""
    fix: str = ""


class Verdict(Document, kw_only=True):
    """What ``verify`` prints."""

    checkpoint: str
    against: str
    agrees: bool
    findings: list[Finding]
    checked: int
    unchecked: int
    notes: list[str] = []


class ProbeStatistics(msgspec.Struct, kw_only=True):
    """Statistics of an activation or a gradient, over finite values; ``zeros`` is the share of exact zeros, 0 to 1."""

    mean: float
    std: float
    min: float
    max: float
    rms: float
    zeros: float
    nan: int
    inf: int


class ProbeSite(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An array that comes out of a module call, or that a module sows or perturbs.

    ``call`` counts the calls of one method of one module. ``iterations`` are the lengths of the loops around the call;
    statistics are then over all iterations that ran. ``marks`` are words such as ``dead`` and ``exploding``.
    """

    path: str
    """The printed path of the module; ``.`` is the model itself."""
    kind: str
    """The module's class; the collection for sown values."""
    method: str
    """The method; the name for sown values."""
    role: str
    """``out``, ``sow`` or ``perturb``."""
    leaf: str = ""
    """Which array of a result that has several: ``[0]``, ``['logits']``."""
    call: int = 1
    shape: tuple[int, ...]
    dtype: str
    iterations: tuple[int, ...] = ()
    ran: int = 1
    """How many times it ran; 0 for a branch that was not taken."""
    statistics: ProbeStatistics | None = None
    gradient: ProbeStatistics | None = None
    marks: list[str] = []
    name: str = ""
    """The whole place in words: path, method, leaf and call."""


class ProbeParam(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The gradient of the loss with respect to a variable; ``path`` is its leaf in the checkpoint."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    gradient: ProbeStatistics
    marks: list[str] = []


class ProbeOperation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An operation that gives non-finite values; ``line`` is ``file:line: source`` of the user's code."""

    name: str
    result: str
    line: str = ""
    iteration: tuple[int, ...] = ()
    from_bad: str = ""
    """``nan`` or ``inf`` if an operand had such values already."""


class FirstNonFinite(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where the first non-finite value is seen, and where it arises.

    ``where`` is the place in words; ``role`` is ``in`` if a module received it (so that the code around the module made
    it), else ``out``. ``bad_leaves`` are leaves of the checkpoint, and ``bad_inputs`` inputs, that hold such values.
    """

    where: str
    kind: str = ""
    role: str = "out"
    iteration: tuple[int, ...] = ()
    nan: int = 0
    inf: int = 0
    operation: ProbeOperation | None = None
    origin: ProbeOperation | None = None
    """The operation that gave the infinities from which ``operation`` made NaN."""
    bad_leaves: list[str] = []
    bad_inputs: list[str] = []


class ProbePair(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An array of one run beside its counterpart of another; ``a`` and ``b`` are the places in words.

    ``relative`` is the norm of the difference over the larger of both norms, ``max_abs`` the largest difference.
    """

    a: str
    b: str
    kind: str = ""
    shape: tuple[int, ...]
    dtype: str
    relative: float
    max_abs: float
    rms_a: float
    rms_b: float
    gradient_rms_a: float | None = None
    gradient_rms_b: float | None = None


class ProbeComparison(msgspec.Struct, kw_only=True):
    """Two checkpoints on one batch. The outputs decide; the calls explain."""

    other: str
    other_model: str
    other_bound: dict[str, str]
    tolerance: float
    agrees: bool
    """True if every output agrees within the tolerance."""
    why: str
    """What decided, in a sentence."""
    outputs: list[ProbePair]
    sites: list[ProbePair]
    first_different: str | None
    """The first call, in the order in which calls finish, that is further apart than the tolerance."""
    only_in_a: list[str]
    only_in_b: list[str]
    gradients: list[ProbePair] = []
    """With a loss: gradients at the calls in the order of the backward pass, then those of params (kind ``param``)."""
    first_different_gradient: str | None = None
    """The first call, in the order of the backward pass, whose gradient is further apart than the tolerance."""
    other_first_non_finite: FirstNonFinite | None = None


class Probe(Document, kw_only=True):
    """What ``probe`` prints: the calls of a model on a checkpoint, in the order in which they finish."""

    checkpoint: str
    chosen: str
    model: str
    inputs: list[str]
    bound: dict[str, str]
    """Where each collection of the model stands in the checkpoint."""
    sites: list[ProbeSite]
    params: list[ProbeParam] = []
    loss: float | None = None
    first_non_finite: FirstNonFinite | None = None
    comparison: ProbeComparison | None = None
    unseen: list[str] = []
    """Calls inside loops of unknown length and the like, which cannot be observed."""
    notes: list[str] = []
    leaves_read: int = 0
    bytes_read: int = 0
    files: list[str] = []
    """Files that were written."""

    @property
    def is_sound(self) -> bool:
        """True if nothing was found."""
        if self.first_non_finite is not None:
            return False
        other = self.comparison
        return other is None or (other.agrees and other.other_first_non_finite is None)


def as_builtins(document: Any) -> Any:
    """The document as JSON-ready values; NaN and infinities become strings."""
    return _finite(msgspec.to_builtins(document))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
