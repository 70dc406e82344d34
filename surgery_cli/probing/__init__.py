"""The probe: runs the user's model on a checkpoint and looks inside. This file is its one door.

Nothing outside imports what lies behind it, so that the room could leave as a package of its own; only the list of
commands knows ``command``. It loads no JAX before there is something to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from surgery_cli.probing.interface.settings import ProbeOptions

if TYPE_CHECKING:
    from surgery_cli.probing.interface.documents import Probe as Probe
    from surgery_cli.probing.use_case.gate import Gate
    from surgery_cli.settings.run import Options
    from surgery_cli.store.open.checkpoint import Checkpoint

__all__ = [
    "ProbeOptions",
    "open_gate",
    "probe",
]


def probe(
    checkpoint: str,
    *,
    model: str,
    inputs: Sequence[str] = (),
    options: ProbeOptions = ProbeOptions(),
    say: Callable[[str], None] = lambda _: None,
) -> Probe:
    """Run the user's model on a checkpoint and a batch, and look inside.

    ``model`` is ``FILE.py:NAME`` or ``FILE.py:NAME(ARGUMENTS)``; this is where the user's code is imported, which
    ``say`` announces. ``inputs`` are specs (``float32[8,28,28,1]``) or files.
    """
    from surgery_cli.probing.use_case import probe as use_case  # loads JAX

    return use_case.probe(checkpoint, model=model, inputs=tuple(inputs), options=options, say=say)


def open_gate(source: Checkpoint, options: Options, say: Callable[[str], None]) -> Gate:
    """Import the model that ``options.probe`` names and bind it to the source, before anything is written.

    Raises:
        SurgeryError: the model or the inputs are wrong, or do not fit the source.
    """
    from surgery_cli.probing.use_case import gate  # loads JAX

    return gate.open_gate(source, options, say)
