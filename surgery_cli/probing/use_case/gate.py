"""The probe that stands before a commit: source and result, one batch, and whether the result may appear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from surgery_cli.compute.devices import default_device
from surgery_cli.draft.check import JudgedRefusal
from surgery_cli.errors import SurgeryError
from surgery_cli.probing.interface import documents
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.use_case.comparison import compare_probed
from surgery_cli.probing.use_case.filters import chosen_sites
from surgery_cli.probing.use_case.running import Probed, loss_of, run_session
from surgery_cli.probing.use_case.session import Session, open_session
from surgery_cli.probing.use_case.taken_inputs import check_not_empty, fitting, unused_inputs
from surgery_cli.script.user_code import UserObject, load_object
from surgery_cli.settings.run import Options
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.advice import NOTHING_LEFT, worded


class Passed(msgspec.Struct, frozen=True):
    """What a result that may appear is said to be, and the bytes that were read on both sides to know it."""

    note: str
    bytes_read: int


class Gate(msgspec.Struct, frozen=True):
    """The model, bound to the source and traced; the result is held against its run.

    ``user`` is the result's model: the source's own, unless the edit makes another one necessary.
    """

    source: Session
    user: UserObject
    options: Options
    loss: Callable[[Any], Any] | None

    def check(self, result: Checkpoint) -> Passed:
        """Run the model on source and result, and say in a line how they compare.

        Raises:
            ValueRefusal: the result has NaN or infinities that the source has not, or, with a tolerance, the outputs
                are further apart.
            SurgeryError: the model does not fit the result.
        """
        with default_device(self.options.device), fitting(self.source):
            settings = _still_there(_settings(self.options), result)
            session = open_session(
                result,
                self.user,
                self.options.probe_inputs,
                settings,
                like=self.source,
                is_staged=True,
            )
            before, after = (
                run_session(s, chosen_sites(s.sites, settings), self.loss)
                for s in (self.source, session)
            )
            bad = _new_non_finite(before, after)
            if bad is not None:
                raise _refusal(bad)
            found = compare_probed(before, after, self.options.tolerance)
        if self.options.tolerance is not None and not found.agrees:
            is_far = any(not output.relative <= found.tolerance for output in found.outputs)
            limit = f", above `--tolerance {found.tolerance:g}`" if is_far else ""
            place = f"; the first call that differs is '{found.first_different}'"
            raise JudgedRefusal(
                "the result does not compute what the source computes",
                why=f"{found.why}{limit}" + (place if found.first_different else ""),
                fix=worded("{}; change the edit, or allow more with `--tolerance`", NOTHING_LEFT),
            )
        return Passed(
            f"probe of {self.options.probe}: no new NaN or infinity, and {found.why}",
            before.bytes_read + after.bytes_read,
        )


def open_gate(source: Checkpoint, options: Options, say: Callable[[str], None]) -> Gate:
    """See ``probe.open_gate``."""
    assert options.probe is not None
    with default_device(options.device):
        settings = _settings(options)
        user = load_object(options.probe, say=say)
        session = open_session(source, user, options.probe_inputs, settings)
        by_loss = None if settings.loss is None else load_object(settings.loss, say=say)
        if settings.model_b is not None:
            user = load_object(settings.model_b, say=say)
        unused_inputs(session, settings, by_loss, user)
        check_not_empty(session)
        loss = loss_of(session, settings, by_loss)
    return Gate(session, user, options, loss)


def _settings(options: Options) -> ProbeOptions:
    called = msgspec.structs.asdict(options.probe_options)
    return ProbeOptions(**called | {"seed": options.seed or 0, "params": options.params})


def _still_there(settings: ProbeOptions, result: Checkpoint) -> ProbeOptions:
    """The settings without places that the edit has moved; the model then finds its variables by itself."""
    nodes = {text for node in result.tree.nodes for text in (node.text, str(node))}
    params = settings.params if (settings.params or "").strip("/") in nodes else None
    bind = {name: place for name, place in settings.bind.items() if place.strip("/") in nodes}
    return msgspec.structs.replace(settings, params=params, bind=bind)


def _new_non_finite(before: Probed, after: Probed) -> documents.FirstNonFinite | None:
    """The first place where the result has NaN or infinities and the source has none."""
    if before.first is None and after.first is not None:
        return after.first
    counted = {seen.site.name: seen.counts.sum() for seen in before.forward.seen.values()}
    for position in sorted(after.forward.seen):
        seen = after.forward.seen[position]
        nan, inf = (int(n) for n in seen.counts.reshape(-1, 2).sum(axis=0))
        if (nan or inf) and counted.get(seen.site.name) == 0:
            return _bad(seen.site.name, nan, inf)
    old = [_counts(value) for value in before.forward.outputs]
    for number, value in enumerate(after.forward.outputs):
        nan, inf = _counts(value)
        if (nan or inf) and (number >= len(old) or not any(old[number])):
            return _bad(f"output {number + 1}", nan, inf)
    return None


def _counts(value: Any) -> tuple[int, int]:
    import jax.numpy as jnp

    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return 0, 0
    return int(jnp.isnan(value).sum()), int(jnp.isinf(value).sum())


def _bad(where: str, nan: int, inf: int) -> documents.FirstNonFinite:
    return documents.FirstNonFinite(where=where, nan=nan, inf=inf)


def _refusal(bad: documents.FirstNonFinite) -> SurgeryError:
    counts = " and ".join(f"{n} {name}" for n, name in ((bad.nan, "NaN"), (bad.inf, "inf")) if n)
    operation = f"; it arises in `{bad.operation.name}`" if bad.operation is not None else ""
    role = {"in": "the input of ", "gradient": "the gradient at "}.get(bad.role, "")
    return JudgedRefusal(
        "the model makes NaN or infinities from the result that it does not make from the source",
        why=f"the first are in {role}'{bad.where}': {counts or 'some'}{operation}",
        fix=worded(
            "{}; change the edit, or leave out `--probe` to write it all the same", NOTHING_LEFT
        ),
    )
