"""Brings together what does not know of each other: what writes a checkpoint, and what probes it before it appears."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from surgery_cli import reports
from surgery_cli.engine.progress import Listener
from surgery_cli.planning import Plan
from surgery_cli.probing import open_gate
from surgery_cli.settings.run import Options
from surgery_cli.surgery.apply import apply as write

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership


def apply(
    source: str,
    destination: str,
    plan: Plan,
    *,
    options: Options = Options(),
    listener: Listener | None = None,
    say: Callable[[str], None] = lambda _: None,
    membership: Membership | None = None,
) -> reports.Report:
    """Write ``destination``: ``source`` with the plan applied, verified before it appears, and probed if asked for.

    ``membership``: of the first process of the command on many hosts; the others ``take_part``.

    Raises:
        SurgeryError: what ``plan`` raises, and what only values or the disk show; nothing was written then.
    """
    return write(
        source,
        destination,
        plan,
        options=options,
        listener=listener,
        say=say,
        open_gate=open_gate,
        membership=membership,
    )
