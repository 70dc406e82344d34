"""What the options of a run on many hosts may say together."""

from __future__ import annotations

from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.settings.declaration import given
from surgery_cli.settings.run import Options

MOST_PROCESSES: Final = 16_384
"""More hosts than any cluster has that writes one checkpoint."""


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
    elif not 1 <= (options.processes or 1) <= MOST_PROCESSES:
        raise PlanError(
            f"`--processes {options.processes}` is no number of processes",
            why=f"they are counted from 1 to {MOST_PROCESSES:,}: there is one on each host",
            fix="give the number of hosts on which the command is started",
            field="processes",
        )
    elif options.process is not None and not 0 <= options.process < (
        options.processes or MOST_PROCESSES
    ):
        raise PlanError(
            f"`--process {options.process}` is no number of a process",
            why="processes are counted from 0, below the number of `--processes`",
            fix="give every one a number of its own",
            field="process",
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
