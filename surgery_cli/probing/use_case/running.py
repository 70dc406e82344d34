"""One run of a session: what the call computes, what the gradients are, and where something stops being finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from surgery_cli.errors import SurgeryError, ValueRefusal
from surgery_cli.probing.interface import documents
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.trace.first_bad import first_bad
from surgery_cli.probing.trace.forward import Forward, Site, is_observable, run_forward
from surgery_cli.probing.trace.gradients import (
    Gradients,
    can_have_gradient,
    checked_scalar,
    random_projection,
    run_gradients,
)
from surgery_cli.probing.use_case.rows import first_non_finite
from surgery_cli.probing.use_case.session import Session
from surgery_cli.script.user_code import UserObject, parameters_of


class Probed(msgspec.Struct, frozen=True):
    """A session that has run."""

    session: Session
    wanted: list[Site]
    variables: dict[Slot, Any]
    bytes_read: int
    forward: Forward
    first: documents.FirstNonFinite | None
    gradients: Gradients | None


def run_session(
    session: Session,
    wanted: list[Site],
    loss: Callable[[Any], Any] | None,
    *,
    is_kept: bool = False,
) -> Probed:
    """Run forwards, and backwards from a loss; ``is_kept`` keeps every value of the wanted sites."""
    variables, bytes_read = session.read()
    arrays = session.call.arrays
    shown = {s.point.position for s in wanted if is_observable(s)}
    kept = shown if is_kept else ()
    forward = run_forward(session.trace, variables, arrays, shown=shown, captured=kept)
    _check_reached(session, forward)
    bad = first_bad(session.trace, forward, variables, arrays)
    first = first_non_finite(session, forward, bad) if bad is not None else None
    gradients = None
    if loss is not None:
        gradients = session.user.run(run_gradients, session.trace, variables, arrays, loss)
        if is_kept:
            reached = {s.point.position for s in wanted if can_have_gradient(s)}
            whole = session.user.run(
                run_gradients, session.trace, variables, arrays, loss, captured=reached
            )
            gradients = msgspec.structs.replace(
                gradients, values=whole.values, variable_values=whole.variable_values
            )
        first = first or _bad_loss(gradients.loss) or _first_bad_gradient(session, gradients)
    return Probed(session, wanted, variables, bytes_read, forward, first, gradients)


def _check_reached(session: Session, forward: Forward) -> None:
    """A run that stops inside a branch has an output only where that branch is taken."""
    stop = session.sites[-1] if session.until else None
    seen = forward.seen.get(stop.point.position) if stop is not None else None
    if stop is not None and seen is not None and not seen.ran.all():
        raise ValueRefusal(
            f"the run does not come by '{stop.name}'",
            why="it stands in a branch that this batch does not take",
            fix=f"stop before the branch, or see where the run goes: leave out `--until {session.until}`",
        )


def loss_of(
    session: Session, options: ProbeOptions, user: UserObject | None
) -> Callable[[Any], Any] | None:
    """The loss as a function of the output alone, summed over the members of an ensemble; None without ``--grad``."""
    if not options.grad:
        return None
    loss = random_projection(options.seed) if user is None else _loss_of_one(session, user)
    if not session.members:
        return loss

    def summed(outputs: Any) -> Any:
        import jax

        return jax.lax.map(loss, outputs).sum()

    return summed


def _loss_of_one(session: Session, user: UserObject) -> Callable[[Any], Any]:
    function = loss_function(user)
    known = session.call.by_name
    parameters = parameters_of(function)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {n: v for n, v in known.items() if takes_any or n in parameters}
    missing = [
        name
        for number, (name, p) in enumerate(parameters.items())
        if number
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and name not in named
    ]
    if missing:
        raise SurgeryError(
            f"the loss '{user.spec.name}' needs '{missing[0]}'",
            why=f"it is called as {user.spec.name}(output, {', '.join(f'{n}={n}' for n in known) or '…'})",
            fix=f"give it as an input: `--input {missing[0]}=…`",
            field="loss",
        )
    return lambda output: checked_scalar(user.run(function, output, **named))


def loss_function(user: UserObject) -> Any:
    """What is called as the loss: the object itself, or what it gives where the spec calls it."""
    return user.call() if user.spec.is_call else user.value


def _bad_loss(loss: float) -> documents.FirstNonFinite | None:
    """A loss that is not finite where every value of the model is."""
    if math.isfinite(loss):
        return None
    is_nan = math.isnan(loss)
    return documents.FirstNonFinite(
        where="the loss", role="loss", nan=int(is_nan), inf=int(not is_nan)
    )


def _first_bad_gradient(session: Session, found: Gradients) -> documents.FirstNonFinite | None:
    """The place where the backward pass meets its first bad gradient: the last in the order of execution."""
    for site in reversed(session.sites):
        measured = found.sites.get(site.point.position)
        if measured is not None and measured.non_finite:
            return documents.FirstNonFinite(
                where=site.name,
                kind=site.label.kind,
                role="gradient",
                nan=measured.nan,
                inf=measured.inf,
            )
    bad = [slot for slot, measured in found.variables.items() if measured.non_finite]
    if not bad:
        return None
    measured = found.variables[bad[-1]]
    where = str(session.binding.leaves[bad[-1]])
    return documents.FirstNonFinite(
        where=where, role="gradient", nan=measured.nan, inf=measured.inf
    )
