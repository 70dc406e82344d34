"""The library: what `import surgery_cli as surgery` gives. Everything is as on the command line, errors included."""

from surgery_cli.errors import (
    CheckpointError,
    DestinationError,
    PlanError,
    SurgeryError,
    ValueRefusal,
    WriteError,
)
from surgery_cli.library.calls import apply, check, diff, inspect, limits, plan, probe, verify
from surgery_cli.library.checkpoints import Leaf, OpenCheckpoint, open
from surgery_cli.library.plans import Planned

__all__ = [
    "CheckpointError",
    "DestinationError",
    "Leaf",
    "OpenCheckpoint",
    "PlanError",
    "Planned",
    "SurgeryError",
    "ValueRefusal",
    "WriteError",
    "apply",
    "check",
    "diff",
    "inspect",
    "limits",
    "open",
    "plan",
    "probe",
    "verify",
]
