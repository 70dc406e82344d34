"""The use cases: inspect, plan, apply, diff, verify, probe, clean; each is loaded when it is first asked for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.loading import loaded

if TYPE_CHECKING:
    from surgery_cli.engine.progress import Listener as Listener
    from surgery_cli.engine.progress import Progress as Progress
    from surgery_cli.inputs.limits import limits as limits
    from surgery_cli.probing import ProbeOptions as ProbeOptions
    from surgery_cli.probing import probe as probe
    from surgery_cli.settings.run import Options as Options
    from surgery_cli.surgery.apply import take_part as take_part
    from surgery_cli.surgery.check import check as check
    from surgery_cli.surgery.clean import clean as clean
    from surgery_cli.surgery.derive import derive as derive
    from surgery_cli.surgery.diff import diff as diff
    from surgery_cli.surgery.doctor import doctor as doctor
    from surgery_cli.surgery.inspect import complete_path as complete_path
    from surgery_cli.surgery.inspect import inspect as inspect
    from surgery_cli.surgery.inverse import inverse as inverse
    from surgery_cli.surgery.judge import judge as judge
    from surgery_cli.surgery.log import log as log
    from surgery_cli.surgery.log import recorded_plan as recorded_plan
    from surgery_cli.surgery.plan import plan as plan
    from surgery_cli.surgery.rescue import rescue as rescue
    from surgery_cli.surgery.seal import seal as seal
    from surgery_cli.surgery.verify import verify as verify
    from surgery_cli.surgery.wiring import apply as apply

_PLACES: Final = {
    "Listener": "engine.progress",
    "Options": "settings.run",
    "ProbeOptions": "probing",
    "Progress": "engine.progress",
    "apply": "surgery.wiring",
    "check": "surgery.check",
    "clean": "surgery.clean",
    "complete_path": "surgery.inspect",
    "derive": "surgery.derive",
    "diff": "surgery.diff",
    "doctor": "surgery.doctor",
    "inspect": "surgery.inspect",
    "inverse": "surgery.inverse",
    "judge": "surgery.judge",
    "limits": "inputs.limits",
    "log": "surgery.log",
    "plan": "surgery.plan",
    "probe": "probing",
    "recorded_plan": "surgery.log",
    "rescue": "surgery.rescue",
    "seal": "surgery.seal",
    "take_part": "surgery.apply",
    "verify": "surgery.verify",
}
"""Where each is; what is said above of their types cannot be read when the program runs."""


class _UseCases(ModuleType):
    """This package, in which `surgery.inspect` is the use case, whether or not its file was loaded before.

    Python gives a package each of its files by name when that is loaded: here it would take the use case's place.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        found = self.__dict__[name] = loaded(f"surgery_cli.{_PLACES[name]}:{name}")
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _UseCases
