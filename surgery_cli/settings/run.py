"""What every command may be told that plans or writes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from surgery_cli.inputs.addresses import local_object
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.shared import MEMORY_BYTES, AbovePlan, Item, LikeInit, Memory, Step
from surgery_cli.settings.values import INPUT, TOLERANCE, rate_of
from surgery_cli.tree.typed_shardings import parse_mesh


def mesh_text(text: str) -> str:
    """What `--mesh` was given, once it is known to be a mesh. Raises as ``parse_mesh``."""
    parse_mesh(text)
    return text


class WritingOptions(AbovePlan, frozen=True, kw_only=True):
    """What a command that writes may be told, beside the plan and above it, wherever it computes."""

    step: Step = None
    item: Item = None
    force: Annotated[
        bool,
        setting(
            "Replace an existing DST, once the new one is whole; of a run, all of its steps go.",
            Group.WRITE,
            on_record=False,
        ),
    ] = False
    as_step: Annotated[
        int | None,
        setting(
            "Write the step under the number N; if DST is the run itself, as a new step of it.",
            Group.WRITE,
            "N",
        ),
    ] = None
    metrics: Annotated[
        Literal["auto", "keep", "drop"],
        setting(
            "Whether the step's metrics come along; `auto`: not into a new step of the same run whose values changed.",
            Group.WRITE,
        ),
    ] = "auto"
    resume: Annotated[
        bool,
        setting(
            "Keep what is done if the run is cut short; the same command then goes on from there.",
            Group.WRITE,
            on_record=False,
        ),
    ] = False
    stale: Annotated[
        bool,
        setting(
            "Go on also from what a run on another machine has kept, if you know that it is over.",
            Group.WRITE,
            needs="resume",
            on_record=False,
        ),
    ] = False
    memory_bytes: Memory = MEMORY_BYTES
    link: Annotated[
        Literal["auto", "reflink", "hard", "never"],
        setting(
            "How unchanged data files come to DST; `never` copies them, `auto` copies what cannot be linked.",
            Group.WRITE,
        ),
    ] = "auto"
    compact: Annotated[
        Literal["auto", "always", "never"],
        setting(
            "Whether to write all leaves anew, without dead bytes; `auto` does where over a quarter would be dead.",
            Group.WRITE,
        ),
    ] = "auto"
    bytes_per_second: Annotated[
        int,
        setting(
            "Bytes in a second between this machine and a bucket, for the preview's minutes.",
            Group.WRITE,
            "SIZE",
            option="--rate",
            read=rate_of,
            default="100MiB",
            of_host=True,
        ),
    ] = 100 << 20
    distributed: Annotated[
        bool,
        setting(
            "Share the work with the processes of this command on other hosts; start the same on each.",
            Group.HOSTS,
            on_record=False,
        ),
    ] = False
    coordinator: Annotated[
        str | None,
        setting(
            "Address of process 0, where JAX does not find it out (it does on TPU slices, GKE, Slurm, Open MPI).",
            Group.HOSTS,
            "HOST:PORT",
            needs="distributed",
            of_host=True,
        ),
    ] = None
    process: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        setting(
            "Number of this process, from 0, where JAX does not find it out.",
            Group.HOSTS,
            "N",
            least=0,
            needs="distributed",
            of_host=True,
        ),
    ] = None
    processes: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        setting(
            "How many processes there are, where JAX does not find it out.",
            Group.HOSTS,
            "N",
            least=1,
            needs="distributed",
            of_host=True,
        ),
    ] = None
    like_init: LikeInit = None
    allow_non_finite: Annotated[
        bool, setting("Accept NaN and infinities that SRC did not have.", Group.CHECK)
    ] = False
    seal: Annotated[
        bool,
        setting(
            "Record digests of all leaves and files of DST, for `verify`.",
            Group.CHECK,
            on_record=False,
        ),
    ] = False
    expected_draft: Annotated[
        str | None,
        setting(
            "Refuse if the draft is not the one that a preview named in its last line.",
            Group.CHECK,
            "sha256:...",
            option="--draft",
            on_record=False,
        ),
    ] = None
    probe: Annotated[
        str | None,
        setting(
            "Run your model on SRC and on the result before that appears; refuse new NaN or infinities.",
            Group.CHECK,
            "FILE.py:MODEL",
            local_object,
        ),
    ] = None
    probe_inputs: Annotated[
        tuple[str, ...],
        setting(
            "The probe's batch: `float32[8,28,28,1]` or a file `batch.npz`; repeatable.",
            Group.CHECK,
            *INPUT,
            option="--input",
            needs="probe",
        ),
    ] = ()
    tolerance: Annotated[
        float | None,
        setting(
            "Refuse the result, too, if the outputs of the probe are further apart than this, relative.",
            Group.CHECK,
            *TOLERANCE,
            needs="probe",
        ),
    ] = None
    probe_options: CallOptions = CallOptions()
    """How the probe calls the model; ``model_b`` is the result's."""


class Options(WritingOptions, frozen=True, kw_only=True):
    """What every command that plans or writes may be told, beside the plan and above it."""

    device: Annotated[
        str, setting("Where to compute: host, cpu, gpu, tpu, or gpu:1.", Group.WRITE, "NAME")
    ] = "host"
    mesh: Annotated[
        str | None,
        setting(
            "Spread leaves over devices, as `data=4,model=2`.", Group.WRITE, "AXIS=N,...", mesh_text
        ),
    ] = None
