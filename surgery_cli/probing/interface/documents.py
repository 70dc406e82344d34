"""Of `probe`: what a model does with a checkpoint."""

from __future__ import annotations

import msgspec

from surgery_cli.document import Noted
from surgery_cli.proof.record_parts import Assumed


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
    it), ``gradient`` or ``loss`` if only these are bad, else ``out``. ``bad_leaves`` are leaves of the checkpoint, and
    ``bad_inputs`` inputs, that hold such values.
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

    ``relative`` is the norm of the difference over the larger of both norms, ``max_abs`` the largest difference. Of an
    output, ``moved`` counts the values that changed by more than the tolerance, and a hundredth, of themselves.
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
    moved: int | None = None


class ProbeComparison(msgspec.Struct, kw_only=True):
    """Two checkpoints on one batch. The outputs decide; the calls explain."""

    other: str
    other_model: str
    other_bound: dict[str, str]
    tolerance: float
    agrees: bool
    """True if every output agrees within the tolerance, and no change is hidden beside larger values."""
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


class Probe(Noted, kw_only=True, frozen=True):
    """What ``probe`` prints: the calls of a model on a checkpoint, in the order in which they finish."""

    checkpoint: str
    chosen: str
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
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
    leaves_read: int = 0
    bytes_read: int = 0
    files: list[str] = []
    """Files that were written."""

    def __bool__(self) -> bool:
        """True if nothing was found, with which the command exits with 0."""
        return self.is_sound

    @property
    def is_sound(self) -> bool:
        """True if nothing was found."""
        if self.first_non_finite is not None:
            return False
        other = self.comparison
        return other is None or (other.agrees and other.other_first_non_finite is None)
