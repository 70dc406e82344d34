"""Everything that shapes a probe; apart from what runs it, so that reading options loads nothing heavy."""

from __future__ import annotations

from typing import Annotated

from surgery_cli.inputs.addresses import checkpoint_address, written_address
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import Item, Params, Step
from surgery_cli.settings.values import INPUT, TOLERANCE


class ProbeOptions(CallOptions, frozen=True, kw_only=True):
    """Everything that shapes a probe.

    ``bind`` places collections by name, ``params`` is short for the model's params. ``at``, ``only`` and ``methods``
    choose rows by the module's path, its class and the method. ``model_inputs`` are the whole model's, where ``run``
    takes others. ``against`` is another checkpoint on the same batch, of ``model_b`` where that is another model;
    ``tolerance`` is relative, None for that of the dtypes.
    """

    run: Annotated[str, setting("Run a method or submodule on its own.", Group.RUN, "NAME")] = ""
    model_inputs: Annotated[
        tuple[str, ...],
        setting(
            "With `--run` of what only exists inside a compact method: the whole model's input.",
            Group.RUN,
            *INPUT,
            option="--model-input",
            needs="run",
        ),
    ] = ()
    until: Annotated[
        str, setting("Stop after a module; `PATH:in` before it.", Group.RUN, "PATH")
    ] = ""
    shapes: Annotated[bool, setting("Only calls and shapes; no tensor is read.", Group.RUN)] = False
    seed: Annotated[int, setting("Seed of inputs and random streams.", Group.RUN, "N", least=0)] = 0
    device: Annotated[str, setting("Where to run: cpu, gpu, tpu, or gpu:1.", Group.RUN, "NAME")] = (
        "cpu"
    )
    at: Annotated[
        tuple[str, ...], setting("Only modules at these paths.", Group.SHOW, "PATTERN")
    ] = ()
    only: Annotated[
        tuple[str, ...], setting("Only modules of these classes.", Group.SHOW, "CLASS")
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        setting(
            "Only calls of these methods; `*` for all.", Group.SHOW, "METHOD", option="--calls"
        ),
    ] = ()
    save: Annotated[
        str | None,
        setting(
            "Write the values of the shown calls to a file.",
            Group.SHOW,
            "FILE.npz",
            written_address,
        ),
    ] = None
    plot: Annotated[
        str | None,
        setting(
            "Draw scales by depth: .svg, .png or .pdf.", Group.SHOW, "FILE.svg", written_address
        ),
    ] = None
    against: Annotated[
        str | None,
        setting(
            "Compare with this checkpoint, call by call.", Group.COMPARE, "CKPT", checkpoint_address
        ),
    ] = None
    tolerance: Annotated[
        float | None,
        setting(
            "How far the outputs may be apart, relative: 1e-5 for float32, 2e-2 for bfloat16.",
            Group.COMPARE,
            *TOLERANCE,
            needs="against",
        ),
    ] = None
    step: Step = None
    item: Item = None
    params: Params = None
