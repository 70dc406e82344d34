"""Probe: run the user's model on a checkpoint and a batch, look inside, and compare two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.compute.devices import default_device
from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.addresses import local_address
from surgery_cli.probing.interface import documents
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.use_case.comparison import compare_probed
from surgery_cli.probing.use_case.files import check_files, draw_probe, save_values
from surgery_cli.probing.use_case.filters import chosen_sites
from surgery_cli.probing.use_case.gradient_rows import with_gradients
from surgery_cli.probing.use_case.rows import document
from surgery_cli.probing.use_case.running import Probed, loss_of, run_session
from surgery_cli.probing.use_case.session import Session, open_session
from surgery_cli.probing.use_case.taken_inputs import check_not_empty, fitting, unused_inputs
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.script.user_code import UserObject, importing_once, load_object
from surgery_cli.settings.declaration import given, settings_of
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


@importing_once()
def probe(
    checkpoint: str,
    *,
    model: str,
    inputs: tuple[str, ...],
    options: ProbeOptions = ProbeOptions(),
    say: Callable[[str], None] = lambda _: None,
) -> documents.Probe:
    """See ``probe.probe``."""
    _check(options)
    with default_device(options.device):
        user = load_object(model, say=say)
        session = open_session(checkpoint, user, inputs, options)
        other_user = user if options.model_b is None else load_object(options.model_b, say=say)
        other = _other(session, other_user, inputs, options)
        wanted = chosen_sites(session.sites, options, other.sites if other is not None else None)
        by_loss = None if options.loss is None else load_object(options.loss, say=say)
        notes = [_not_taken(name) for name in unused_inputs(session, options, by_loss, other_user)]
        if options.shapes:
            return document(session, wanted, {}, notes)
        check_files(options, session)
        loss = loss_of(session, options, by_loss)
        check_not_empty(session)
        with fitting(session):
            probed = run_session(session, wanted, loss, is_kept=options.save is not None)
            found = document(session, wanted, probed.forward.seen, notes)
            found = with_gradients(found, probed)
            found = msgspec.structs.replace(
                found,
                first_non_finite=probed.first,
                leaves_read=len(probed.variables),
                bytes_read=probed.bytes_read,
            )
            if other is not None:
                found = msgspec.structs.replace(
                    found,
                    comparison=_against(probed, other, options, loss),
                    assumptions=assumed_steps(probed.session.checkpoint, other.checkpoint),
                )
        return _with_files(found, probed, options)


def _not_taken(name: str) -> Note:
    return Remark(
        DocsPage.PROBE_INPUTS, f"neither the model nor a loss takes '{name}' of the inputs"
    )


def _other(
    session: Session, user: UserObject, inputs: tuple[str, ...], options: ProbeOptions
) -> Session | None:
    """The same call on the other checkpoint, of the other model if one is named; None if there is no other."""
    if options.against is None:
        return None
    # `--step` chooses in the first checkpoint; the other one says its own as `CKPT@N`
    settings = msgspec.structs.replace(options, step=None)
    return open_session(options.against, user, inputs, settings, like=session)


def _against(
    probed: Probed, other: Session, options: ProbeOptions, loss: Callable[[Any], Any] | None
) -> documents.ProbeComparison:
    wanted = chosen_sites(other.sites, options, probed.session.sites)
    return compare_probed(probed, run_session(other, wanted, loss), options.tolerance, loss)


def _with_files(found: documents.Probe, probed: Probed, options: ProbeOptions) -> documents.Probe:
    """Write what was asked for, and name it in the document."""
    files = []
    if options.save is not None:
        values = {
            seen.site.name: seen.values
            for seen in probed.forward.seen.values()
            if seen.values is not None
        }
        if probed.gradients is not None:
            names = {s.point.position: s.name for s in probed.wanted}
            values |= {f"gradient:{names[at]}": v for at, v in probed.gradients.values.items()}
            leaves = probed.session.binding.leaves
            of_variables = probed.gradients.variable_values
            values |= {f"gradient:{leaves[s]}": v for s, v in of_variables.items() if s in leaves}
        save_values(Path(local_address(options.save)), values)
        files.append(options.save)
    if options.plot is not None:
        draw_probe(Path(local_address(options.plot)), found)
        files.append(options.plot)
    return msgspec.structs.replace(found, files=files)


def _check(options: ProbeOptions) -> None:
    """Refuse options that mean nothing together."""
    named = given(options)
    for declared in named.values():
        if declared.needs and declared.needs not in named:
            needed = settings_of(ProbeOptions)[declared.needs].option
            raise SurgeryError(f"`{declared.option}` says something only together with `{needed}`")
    if options.shapes and (options.grad or options.against is not None):
        raise SurgeryError(
            "`--shapes` reads no tensor, so there is nothing to differentiate or compare",
            fix="leave it out",
        )
