"""What every command may be told that plans or writes."""

from __future__ import annotations

from typing import Annotated, Literal

from surgery_cli.inputs.addresses import local_input, local_object
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import AbovePlan, Item, LikeInit, Step
from surgery_cli.settings.values import memory_of, tolerance_of


class Options(AbovePlan, frozen=True, kw_only=True):
    """What every command that plans or writes may be told, beside the plan and above it."""

    step: Step = None
    item: Item = None
    force: Annotated[
        bool, setting("Replace an existing DST, once the new one is whole.", Group.WRITE)
    ] = False
    as_step: Annotated[int | None, setting("Rename the step to N.", Group.WRITE, metavar="N")] = (
        None
    )
    memory_bytes: Annotated[
        int,
        setting(
            "Bytes in flight at most.",
            Group.WRITE,
            option="--memory",
            metavar="SIZE",
            read=memory_of,
            default="4GiB",
        ),
    ] = 4 << 30
    link: Annotated[
        Literal["auto", "reflink", "hard", "never"],
        setting("How untouched files are shared.", Group.WRITE),
    ] = "auto"
    compact: Annotated[
        Literal["auto", "always", "never"],
        setting("Whether to write a fresh store.", Group.WRITE),
    ] = "auto"
    device: Annotated[
        str,
        setting("Where to compute: host, cpu, gpu, tpu, or gpu:1.", Group.WRITE, metavar="NAME"),
    ] = "host"
    mesh: Annotated[
        str | None, setting("Spread leaves over devices.", Group.WRITE, metavar="AXIS=N,...")
    ] = None
    like_init: LikeInit = None
    allow_non_finite: Annotated[
        bool, setting("Accept NaN and infinities that SRC did not have.", Group.CHECK)
    ] = False
    seal: Annotated[
        bool, setting("Record digests of all leaves and files of DST.", Group.CHECK)
    ] = False
    expected_draft: Annotated[
        str | None,
        setting(
            "Refuse if the draft is not the one previewed.",
            Group.CHECK,
            option="--draft",
            metavar="sha256:...",
        ),
    ] = None
    probe: Annotated[
        str | None,
        setting(
            "Run your model on SRC and the result first; new NaN or infinities stop the commit.",
            Group.CHECK,
            metavar="FILE.py:MODEL",
            parser=local_object,
        ),
    ] = None
    probe_inputs: Annotated[
        tuple[str, ...],
        setting(
            "The probe's batch: `float32[8,28,28,1]` or a file `batch.npz`; repeatable.",
            Group.CHECK,
            option="--input",
            metavar="[NAME=]SPEC",
            parser=local_input,
            needs="probe",
        ),
    ] = ()
    tolerance: Annotated[
        float | None,
        setting(
            "Stop, too, if the probe's outputs are further apart, relative.",
            Group.CHECK,
            metavar="X",
            parser=tolerance_of,
            needs="probe",
        ),
    ] = None
    probe_options: CallOptions = CallOptions()
    """How the probe calls the model; ``model_b`` is the result's."""
