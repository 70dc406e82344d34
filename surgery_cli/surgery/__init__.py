"""The use cases: inspect, plan, apply, diff, verify, probe, clean. The only wiring, and the Python API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from surgery_cli import reports
from surgery_cli.engine.progress import Listener, Progress
from surgery_cli.inputs.limits import limits
from surgery_cli.planning import Plan
from surgery_cli.probing import ProbeOptions, open_gate, probe
from surgery_cli.settings.run import Options
from surgery_cli.surgery.apply import apply as write
from surgery_cli.surgery.apply import take_part
from surgery_cli.surgery.check import check
from surgery_cli.surgery.clean import clean
from surgery_cli.surgery.derive import derive
from surgery_cli.surgery.diff import diff
from surgery_cli.surgery.doctor import doctor
from surgery_cli.surgery.inspect import complete_path, inspect
from surgery_cli.surgery.inverse import inverse
from surgery_cli.surgery.judge import judge
from surgery_cli.surgery.log import log, recorded_plan
from surgery_cli.surgery.plan import plan
from surgery_cli.surgery.rescue import rescue
from surgery_cli.surgery.seal import seal
from surgery_cli.surgery.verify import verify

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership

__all__ = [
    "Listener",
    "Options",
    "ProbeOptions",
    "Progress",
    "apply",
    "check",
    "clean",
    "complete_path",
    "derive",
    "diff",
    "doctor",
    "inspect",
    "inverse",
    "judge",
    "limits",
    "log",
    "plan",
    "probe",
    "recorded_plan",
    "rescue",
    "seal",
    "take_part",
    "verify",
]


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
