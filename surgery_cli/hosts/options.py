"""What the options of a run on many hosts may say together."""

from __future__ import annotations

from surgery_cli.errors import PlanError
from surgery_cli.settings.declaration import given
from surgery_cli.settings.run import Options


def refuse_strays(options: Options) -> None:
    """Look at the options of runs on many hosts.

    Raises:
        PlanError: one says something only together with another, or against it.
    """
    if not options.distributed:
        for declared in given(options).values():
            if declared.needs == "distributed":
                raise PlanError(
                    f"`{declared.option}` says something only together with `--distributed`",
                    fix="add `--distributed`, or leave it out",
                )
    elif options.device != "host" or options.mesh is not None:
        raise PlanError(
            "`--distributed` computes on the processors of the hosts",
            why="an accelerator that several hosts share would have to be started on all of them at once",
            fix="leave `--device` and `--mesh` out",
        )
    elif options.resume:
        raise PlanError(
            "`--resume` is for one process",
            why="what several have done is not kept: each would have to be there again, and find its own",
            fix="leave one of `--distributed` and `--resume` out",
        )
