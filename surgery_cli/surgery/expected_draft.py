"""`apply --draft`: the draft must be the one that was previewed; if it is another, what has changed."""

from __future__ import annotations

import contextlib
import re

from surgery_cli.draft.digest import DigestPart, digest_head
from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.settings.run import Options
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.surgery.preparation import Prepared

_AGAIN = "run `surgery plan` again and look at what it says"
_PART = DigestPart()


def check_expected(prepared: Prepared, options: Options) -> None:
    """See that the draft is ``options.expected_draft``, if there is one.

    Raises:
        CheckpointError: the source or a donor has changed.
        PlanError: the plan or the options have, or what is expected is no digest.
    """
    expected, digest = options.expected_draft, prepared.draft.digest
    if expected is None or expected == digest:
        return
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", expected):
        raise PlanError(
            f"'{expected}' is not the digest of a draft",
            why="it is `sha256:` and 64 digits, as the last line of `surgery plan` says it",
            fix=_AGAIN,
        )
    root = prepared.checkpoint.location.root
    if expected[_PART.source] != digest[_PART.source]:
        other = _step_of(expected, prepared, options)
        if other is not None:
            raise PlanError(
                f"the draft that was previewed is one of step {other}",
                why=f"what is opened now: {prepared.checkpoint.location.chosen}",
                fix=f"add `--step {other}`, or {_AGAIN}",
            )
        raise CheckpointError(
            f"'{root}' is not what was previewed",
            why=f"the draft was {expected}, and is {digest} over what is opened there now:"
            f" {prepared.checkpoint.location.chosen}",
            fix=_AGAIN,
        )
    if expected[_PART.donor_names] == digest[_PART.donor_names] and (
        expected[_PART.donors] != digest[_PART.donors]
    ):
        raise CheckpointError(
            "a donor is not what was previewed",
            why=f"the draft was {expected}, and is {digest} over what the plan's donors are now",
            fix=_AGAIN,
        )
    raise PlanError(
        f"the draft is not the one that was previewed: {expected}",
        why=f"it is {digest} now: the plan, the options or the version of surgery have changed",
        fix=_AGAIN,
    )


def _step_of(expected: str, prepared: Prepared, options: Options) -> int | None:
    """The step of the same run that the draft was made of, if it was another."""
    location = prepared.checkpoint.location
    for step in location.steps:
        if step == location.step:
            continue
        with contextlib.suppress(SurgeryError):
            other = open_checkpoint(str(location.root), step=step, item=options.item)
            if (
                f"sha256:{digest_head(other.fingerprint, {})}"[_PART.source]
                == expected[_PART.source]
            ):
                return step
    return None
