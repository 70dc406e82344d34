"""The commands as functions: the same arguments, the same documents, the same errors; nothing is printed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from surgery_cli import reports, surgery
from surgery_cli.document import Document
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.limits import limits as declared_limits
from surgery_cli.library.arguments import Place, settings_as, with_checked_arguments
from surgery_cli.library.plans import Planned, Policy, plan_from, policy_from
from surgery_cli.probing import ProbeOptions
from surgery_cli.settings.limits import limits_of
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import MEMORY_BYTES

if TYPE_CHECKING:
    from surgery_cli.probing import Probe
else:
    Probe = Document  # what is loaded only where somebody probes


@with_checked_arguments
def inspect(
    checkpoint: Place,
    *at: str,
    step: int | None = None,
    item: str | None = None,
    params: str | None = None,
    stats: bool = False,
    only: Literal["bad"] | None = None,
    digests: bool = False,
    optimizer: bool = False,
    memory_bytes: int = MEMORY_BYTES,
) -> reports.Inspection:
    """What is in a checkpoint, of the leaves that the patterns `at` name, or of all.

    Args:
        checkpoint: As on the command line: a path, `ROOT@N`, an address of a bucket.
        at: Patterns of leaves.
        step: Which step of a run; the newest finished one by default.
        item: Which item of a step.
        params: Where the params stand, if that cannot be told.
        stats: Read every value: mean, std, range, norm, histogram.
        only: `bad`: read every value, and show what is wrong alone.
        digests: Read every value: a digest of each leaf.
        optimizer: Name the states of the optimizer, their slots and clocks.
        memory_bytes: Bytes of tensors in memory at once; a 16 MiB block or a stored chunk may take more, which is said.

    Raises:
        PlanError: nothing stands there, or a pattern names nothing.
        CheckpointError: what stands there cannot be read.
    """
    return surgery.inspect(
        str(checkpoint),
        at,
        step=step,
        item=item,
        params=params,
        stats=stats,
        only=only,
        digests=digests,
        optimizer=optimizer,
        memory_bytes=memory_bytes,
    )


@with_checked_arguments
def plan(
    source: Place,
    plan: Planned,
    *,
    to: Place | None = None,
    variables: Mapping[str, Any] = {},
    **settings: Any,
) -> reports.Preview:
    """What `apply` would do; nothing is written.

    It is told from metadata, and where values are edited beside a state like Adam's, from up to 64 MiB of that, unless
    `optimizer_kind` says what it is.

    Args:
        source: The checkpoint that would be edited.
        plan: Its text, a `pathlib.Path` of its file, a dict like the file, or one operation or a list of them.
        to: Checks as well that the result can be written there.
        variables: What fills `${name}` in the plan, before its `vars`.
        settings: As the options of `apply`: `step`, `seed`, `optimizer`, `device`, `memory_bytes`, …

    Raises:
        SurgeryError: everything that is wrong, as far as metadata shows.
    """
    destination = None if to is None else str(to)
    read = plan_from(plan, variables)
    return surgery.plan(str(source), read, destination=destination, options=_options(settings))


@with_checked_arguments
def apply(
    source: Place,
    destination: Place,
    plan: Planned,
    *,
    variables: Mapping[str, Any] = {},
    **settings: Any,
) -> reports.Report:
    """Write ``destination``: ``source`` with the plan applied, verified before it appears.

    Args:
        source: The checkpoint that is edited; it is never written to.
        destination: What is to be made.
        plan: As in `plan`.
        variables: As in `plan`.
        settings: As the options of `apply`: `step`, `seed`, `optimizer`, `device`, `force`, `memory_bytes`, …

    Raises:
        SurgeryError: what `plan` raises, and what only values or the disk show; nothing was written then.
    """
    read, options = plan_from(plan, variables), _options(settings)
    return surgery.apply(str(source), str(destination), read, options=options)


@with_checked_arguments
def diff(
    a: Place,
    b: Place,
    *at: str,
    step: int | None = None,
    item: str | None = None,
    structure: bool = False,
    rtol: float = 0.0,
    atol: float = 0.0,
    memory_bytes: int = MEMORY_BYTES,
) -> reports.Difference:
    """Structure and values of two checkpoints; NaN equals NaN, and -0 equals 0.

    Args:
        a: A checkpoint.
        b: The one to compare it with.
        at: Patterns of leaves; all without.
        step: Which step of each, where they are runs.
        item: Which item of a step.
        structure: Compare paths, kinds, shapes and dtypes alone.
        rtol: Values agree that are no further apart than `atol + rtol × magnitude`.
        atol: See `rtol`.
        memory_bytes: Bytes of tensors in memory at once; a 16 MiB block or a stored chunk may take more, which is said.

    Raises:
        PlanError: nothing stands there, or a pattern names nothing on either side.
        CheckpointError: what stands there cannot be read.
    """
    return surgery.diff(
        str(a),
        str(b),
        at,
        step=step,
        item=item,
        structure=structure,
        rtol=rtol,
        atol=atol,
        memory_bytes=memory_bytes,
    )


@with_checked_arguments
def verify(
    checkpoint: Place,
    *,
    like: Place | None = None,
    like_init: str | None = None,
    like_manifest: Place | None = None,
    strict: bool = False,
    allow_non_finite: bool = False,
    step: int | None = None,
    item: str | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> reports.Verdict:
    """Read every byte and check it against the digests on record; or compare the structure with another's.

    Args:
        checkpoint: As on the command line.
        like: Another checkpoint, whose structure, shapes and dtypes it must have.
        like_init: `FILE.py:FUNCTION` of the training script: would it restore the checkpoint, and exactly?
        like_manifest: What `seal --to` wrote, or `inspect --digests --json` printed.
        strict: The verdict is true only if every leaf has a digest on record, too.
        allow_non_finite: NaN and infinities are no finding.
        step: Which step of a run; the newest finished one by default.
        item: Which item of a step.
        memory_bytes: Bytes of tensors in memory at once; a 16 MiB block or a stored chunk may take more, which is said.

    Raises:
        PlanError: nothing stands there.
        CheckpointError: what stands there, or its record, cannot be read; a damaged leaf is a finding.
    """
    manifest = None if like_manifest is None else path_at(str(like_manifest))
    found = surgery.verify(
        str(checkpoint),
        like=None if like is None else str(like),
        like_init=like_init,
        like_manifest=manifest,
        allow_non_finite=allow_non_finite,
        step=step,
        item=item,
        memory_bytes=memory_bytes,
    )
    return msgspec.structs.replace(found, strict=strict)


@with_checked_arguments
def check(
    checkpoint: Place,
    policy: Policy,
    *,
    variables: Mapping[str, Any] = {},
    **settings: Any,
) -> reports.Checked:
    """What each rule of a policy says of a checkpoint.

    Args:
        checkpoint: As on the command line.
        policy: Its text, a `pathlib.Path` of its file, a dict like the file, or the list of its rules.
        variables: What fills `${name}` in it.
        settings: `step`, `item`, `params`, `memory_bytes`.

    Raises:
        PlanError: the policy says what cannot be meant.
        CheckpointError: the checkpoint, or what it is compared with, cannot be read.
    """
    rules, options = policy_from(policy, variables), _options(settings)
    name = os.fspath(policy) if isinstance(policy, os.PathLike) else ""
    return surgery.check(str(checkpoint), rules, policy=name, options=options)


@with_checked_arguments
def probe(checkpoint: Place, *, model: str, input: str | Sequence[str], **settings: Any) -> Probe:
    """Every module call of a model on a batch, with its outputs' shapes and numbers.

    Args:
        checkpoint: As on the command line.
        model: `FILE.py:NAME` of the module, or of a function that makes it.
        input: The batch: `float32[8,28,28,1]`, or a file; one for each argument of the model.
        settings: As the options of `probe`: `run`, `until`, `against`, `tolerance`, `device`, `step`, …

    Raises:
        SurgeryError: the model, the batch or the checkpoint do not fit each other, or the model fails.
    """
    inputs = (input,) if isinstance(input, str) else tuple(input)
    options = settings_as(ProbeOptions, settings)
    return surgery.probe(str(checkpoint), model=model, inputs=inputs, options=options)


def _options(settings: Mapping[str, Any]) -> Options:
    return settings_as(Options, settings)


def limits(said: Mapping[str, int]) -> AbstractContextManager[None]:
    """Inside of `with`, files may declare as much as is said, instead of what the table of limits says.

    Args:
        said: The most of each, by the names of the table: `{"leaves": 2_000_000}`.

    Raises:
        PlanError: there is no such limit, or it is no number.
    """
    return declared_limits(limits_of([f"{name}={most}" for name, most in said.items()]))
