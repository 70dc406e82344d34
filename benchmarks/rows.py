"""The table: which tasks are measured, and how each contender does them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SURGERY, ORBAX, COPY, LOOP = "surgery", "Orbax script", "cp -r", "TensorStore loop"
DESTINATION = "destination"
ON_TENTH, ON_COMMON = "surgery on a tenth", "surgery on the common size"

KERNEL = "params.layer_0.kernel"
MOMENTS = ("opt_state.0.mu", "opt_state.0.nu")
MU, NU = (f"{tree}.layer_0.kernel" for tree in MOMENTS)


@dataclass(frozen=True)
class Measurement:
    """One process, from its start to its end."""

    wall_seconds: float
    cpu_seconds: float
    """User and system time, all threads."""
    peak_bytes: int
    written_bytes: int
    """What the kernel counted as written to storage; 0 on a filesystem that counts nothing, such as tmpfs."""
    new_bytes: int
    """Sizes of the destination's files that are not links to the sources'."""
    requests: int = 0
    """To the bucket."""
    down_bytes: int = 0
    """Of objects, from the bucket to this machine."""
    up_bytes: int = 0
    bucket_files: int = 0
    """Objects of the source there."""


@dataclass(frozen=True)
class Places:
    """Where a row finds its checkpoints; ``edited`` is a copy of ``source`` with one leaf edited.

    ``tenth`` and ``tenth_donor`` are a tenth the size of ``source``, ``twice`` is twice that; ``stacked`` has its
    layers in one leaf, as `nn.scan` keeps them, ``vocabulary`` as many bytes in one embedding; ``leaves`` has many
    leaves, ``some_leaves`` no more than 20,000, ``large`` has one large leaf, ``logical`` far more bytes than its
    files. ``model`` is a Llama as transformers saves it, ``scanned`` the same as MaxText does.
    """

    source: Path
    donor: Path
    edited: Path
    tenth: Path
    tenth_donor: Path
    twice: Path
    stacked: Path
    vocabulary: Path
    leaves: Path
    some_leaves: Path
    large: Path
    logical: Path
    model: Path
    scanned: Path
    destination: Path

    @classmethod
    def below(cls, scratch: Path) -> "Places":
        return cls(**{name: scratch / name for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Contender:
    """One way to do a task; ``command`` makes its command line.

    ``is_same_task``: its result must agree with surgery's.
    """

    name: str
    command: Callable[[Places], list[str]]
    is_same_task: bool = True
    runs: list[Measurement] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One task, and who takes part. ``compared`` are dotted names of leaves on which all results must agree."""

    key: str
    name: str
    contenders: tuple[Contender, ...]
    writes: bool = True
    compared: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)
    """Exit codes that surgery may end with (`diff` says 1 of what differs)."""
    needs: tuple[str, ...] = ("source",)
    """The checkpoints that it starts from, by their names in ``Places``."""
    bucket: str = ""
    """The one of them that stands in the bucket; the result goes there, too."""


def _surgery(command: str, *words: str, name: str = SURGERY) -> Contender:
    def line(places: Places) -> list[str]:
        named = {name: str(path) for name, path in vars(places).items()}
        given = [word.format(**named) for word in (command, *words)]
        return [sys.executable, "-m", "surgery_cli", *given]

    return Contender(name, line, is_same_task=name == SURGERY)


def _edit(command: str, *words: str, source: str = "{source}", name: str = SURGERY) -> Contender:
    return _surgery(command, source, "{destination}", *words, "--quiet", name=name)


def _graft(donor: str, **options: str) -> Contender:
    return _edit("replace", "params/layer_0", "--with", donor, "--optimizer", "keep", **options)


def _script(
    name: str, file: str, task: str, *, source: str = "source", donor: bool = False
) -> Contender:
    def line(places: Places) -> list[str]:
        given = [task, str(getattr(places, source)), str(places.destination)]
        with_donor = ["--donor", str(places.donor)] if donor else []
        return [sys.executable, str(HERE / file), *given, *with_donor]

    return Contender(name, line)


def _conversion(task: str, source: str) -> Contender:
    def line(places: Places) -> list[str]:
        given = [task, str(getattr(places, source)), str(places.destination)]
        return [sys.executable, str(HERE / "conversion.py"), *given]

    return Contender(ORBAX, line)


def _orbax(task: str, **options: bool | str) -> Contender:
    return _script(ORBAX, "recipe.py", task, **options)


def _loop(task: str, **options: bool | str) -> Contender:
    return _script(LOOP, "loop.py", task, **options)


IN_BUCKET = "gs://bench/{name}"


def _in_bucket(contender: Contender, source: str) -> Contender:
    """The same, from the checkpoint of that name in the bucket to a new one beside it."""

    def line(places: Places) -> list[str]:
        moved = {
            str(getattr(places, source)): IN_BUCKET.format(name=source),
            str(places.destination): IN_BUCKET.format(name=DESTINATION),
        }
        return [moved.get(word, word) for word in contender.command(places)]

    return replace(contender, command=line)


def _bucket_row(key: str, name: str, source: str, *contenders: Contender, **more: Any) -> Row:
    there = tuple(_in_bucket(contender, source) for contender in contenders)
    return Row(key, f"gs://: {name}", there, needs=(source,), bucket=source, **more)


def _copy(source: str = "source") -> Contender:
    def line(places: Places) -> list[str]:
        return ["cp", "-r", str(getattr(places, source)), str(places.destination)]

    return Contender(COPY, line, is_same_task=False)


def _python(name: str, code: str) -> Contender:
    return Contender(name, lambda _: [sys.executable, "-c", code])


MEMORY = ("--memory", "256MiB")
LEAF = ("params/layer_0/kernel", "--by", "0.5")
ONE_LEAF = ("rescale", *LEAF, "--optimizer", "keep")
RENAME = ("rename", "params/layer_0", "--to", "params/first")
LAYERS = 32
"""Of the checkpoint in which they are one leaf."""
UNSTACK = ("unstack", "params/layers", "--to", f"params/layer_{{{{0..{LAYERS - 1}}}}}")
VOCABULARY, GROWN = 65_408, 65_536
"""Rows of an embedding before and after."""
RESIZE = ("resize", "params/embedding", "--axis", "0", "--size", str(GROWN))
COLUMNS = ("--mesh", "fsdp=16", "--spec", "**/kernel=None,fsdp")
LLAMA = HERE.parent / "plans" / "llama"
HEAD_DIM = 64
CONVERTED = ("--set", f"head_dim={HEAD_DIM}", *MEMORY)
MANY = ("params/layer_00007/kernel", "--by", "0.5")


def table(device: str | None = None) -> list[Row]:
    """Every row, none of them measured yet; with ``device``, surgery also computes there, as a further contender."""
    return [_with_device(row, device) if device else row for row in _rows()]


def _with_device(row: Row, device: str) -> Row:
    first = row.contenders[0]
    if not row.writes or not row.compared or row.key in ("rename", "graft", "reshard"):
        return row
    on_device = Contender(
        f"{SURGERY} on {device}", lambda places: [*first.command(places), "--device", device]
    )
    return replace(row, contenders=(first, on_device, *row.contenders[1:]))


def _rows() -> list[Row]:
    """A new row or contender is a line here."""
    return [
        Row(
            "leaf",
            "one leaf rescaled",
            (_edit(*ONE_LEAF), _orbax("leaf"), _copy()),
            compared=(KERNEL,),
        ),
        Row(
            "moments",
            "one leaf, its moments follow",
            (_edit("rescale", *LEAF, "--optimizer", "transform"), _orbax("moments"), _copy()),
            compared=(KERNEL, MU, NU),
        ),
        Row(
            "kernels",
            "all kernels rescaled",
            (
                _edit("rescale", "params", "--by", "0.5", "--optimizer", "keep", *MEMORY),
                _orbax("kernels"),
                _copy(),
                _loop("kernels"),
            ),
            compared=(KERNEL,),
        ),
        Row(
            "rename",
            "one layer renamed",
            (
                _edit(*RENAME),
                _edit(*RENAME, source="{tenth}", name=ON_TENTH),
                _orbax("rename"),
                _copy(),
            ),
            compared=("params.first.kernel", "opt_state.0.mu.first.kernel"),
            needs=("source", "tenth"),
        ),
        Row(
            "graft",
            "one layer from a donor",
            (
                _graft("{donor}"),
                _graft("{tenth_donor}", source="{tenth}", name=ON_TENTH),
                _orbax("graft", donor=True),
                _copy(),
            ),
            compared=(KERNEL,),
            needs=("source", "donor", "tenth", "tenth_donor"),
        ),
        Row(
            "bfloat16",
            "everything cast to bfloat16",
            (
                _edit("cast", "--to", "bfloat16", *MEMORY),
                _orbax("bfloat16"),
                _copy(),
                _loop("bfloat16"),
            ),
            compared=(KERNEL, MU, NU),
        ),
        Row(
            "average",
            "two checkpoints averaged",
            (
                _edit("average", "--with", "{donor}", *MEMORY),
                _orbax("average", donor=True),
                _copy(),
                _loop("average", donor=True),
            ),
            compared=(KERNEL, MU, NU),
            needs=("source", "donor"),
        ),
        Row(
            "stack",
            "all layers stacked",
            (
                _edit("stack", "params/layer_*", "--to", "params/layers", *MEMORY),
                _orbax("stack"),
                _copy(),
            ),
            compared=("params.layers.kernel", "opt_state.0.nu.layers.kernel"),
        ),
        Row(
            "unstack",
            "all layers taken apart",
            (
                _edit(*UNSTACK, source="{stacked}"),
                _orbax("unstack", source="stacked"),
                _copy("stacked"),
            ),
            compared=(KERNEL, MU, NU),
            needs=("stacked",),
        ),
        Row(
            "transpose",
            "all kernels transposed",
            (
                _edit("transpose", "params/layer_*/kernel", *MEMORY),
                _orbax("transpose"),
                _copy(),
            ),
            compared=(KERNEL, MU, NU),
        ),
        Row(
            "reshard",
            "laid out for 16 hosts",
            (_edit("reshard", *COLUMNS, *MEMORY), _orbax("reshard"), _copy()),
            compared=(KERNEL, MU, NU),
        ),
        Row(
            "vocabulary",
            "128 rows more of a vocabulary",
            (
                _edit(*RESIZE, source="{vocabulary}"),
                _orbax("vocabulary", source="vocabulary"),
                _copy("vocabulary"),
            ),
            compared=tuple(f"{tree}.embedding" for tree in ("params", *MOMENTS)),
            needs=("vocabulary",),
        ),
        Row(
            "scan",
            "Hugging Face's Llama to scanned layers",
            (
                _edit("apply", str(LLAMA / "hf-to-maxtext.yaml"), *CONVERTED, source="{model}"),
                _conversion("there", "model"),
                _copy("model"),
            ),
            compared=(
                "params.params.decoder.layers.self_attention.query.kernel",
                "params.params.decoder.layers.self_attention.out.kernel",
                "params.params.decoder.layers.mlp.wo.kernel",
            ),
            needs=("model",),
        ),
        Row(
            "unscan",
            "scanned layers to Hugging Face's Llama",
            (
                _edit("apply", str(LLAMA / "maxtext-to-hf.yaml"), *CONVERTED, source="{scanned}"),
                _conversion("back", "scanned"),
                _copy("scanned"),
            ),
            needs=("model", "scanned"),
        ),
        Row(
            "inspect",
            "inspect",
            (_surgery("inspect", "{source}"), _orbax("metadata")),
            writes=False,
        ),
        Row(
            "stats",
            "inspect --stats",
            (_surgery("inspect", "{source}", "--stats"), _orbax("restore"), _loop("read")),
            writes=False,
        ),
        Row(
            "looks",
            "a large leaf: statistics and digest, `--memory 128MiB`",
            (
                _surgery("inspect", "{large}", "--stats", "--digests", "--memory", "128MiB"),
                _orbax("look", source="large"),
            ),
            writes=False,
            needs=("large",),
        ),
        Row(
            "verify",
            "verify",
            (_surgery("verify", "{source}"), _orbax("restore"), _loop("read")),
            writes=False,
        ),
        Row(
            "diff",
            "diff with the edited copy",
            (_surgery("diff", "{source}", "{edited}"), _loop("read")),
            writes=False,
            codes=(1,),
            needs=("source", "edited"),
        ),
        Row(
            "help",
            "start-up (--help)",
            (
                _surgery("--help"),
                _python("import orbax", "import orbax.checkpoint"),
                _python("bare python", "pass"),
            ),
            writes=False,
            needs=(),
        ),
        Row(
            "leaves-inspect",
            "many leaves: inspect",
            (_surgery("inspect", "{leaves}"), _orbax("metadata", source="leaves")),
            writes=False,
            needs=("leaves",),
        ),
        Row(
            "leaves-plan",
            "many leaves: plan",
            (_surgery("rescale", "{leaves}", "{destination}", *MANY, "--dry-run"),),
            writes=False,
            needs=("leaves",),
        ),
        Row(
            "leaves-edit",
            "many leaves: one edited",
            (_edit("rescale", *MANY, source="{leaves}"),),
            needs=("leaves",),
        ),
        Row(
            "logical",
            "one leaf of a huge checkpoint",
            (
                _edit(*ONE_LEAF, source="{logical}"),
                _edit(*ONE_LEAF, name=ON_COMMON),
                _copy("logical"),
            ),
            needs=("logical", "source"),
        ),
        Row(
            "large",
            "a large leaf rescaled",
            (
                _edit("rescale", *LEAF, "--memory", "512MiB", source="{large}"),
                _copy("large"),
            ),
            needs=("large",),
        ),
        Row(
            "large-reshard",
            "a large leaf in crossed chunks",
            (
                _edit(
                    *("reshard", *COLUMNS, "--chunk-bytes", "64MiB", "--memory", "512MiB"),
                    source="{large}",
                ),
                _copy("large"),
            ),
            needs=("large",),
        ),
        _bucket_row(
            "bucket-leaf",
            "one leaf rescaled",
            "source",
            _edit(*ONE_LEAF),
            _orbax("leaf"),
            compared=(KERNEL,),
        ),
        *(
            _bucket_row(
                key,
                name,
                source,
                _edit("cast", "--to", "bfloat16", *MEMORY, source=f"{{{source}}}"),
                _orbax("bfloat16", source=source),
                compared=(KERNEL, MU, NU),
            )
            for key, name, source in (
                ("bucket-bfloat16", "everything cast to bfloat16", "source"),
                ("bucket-bfloat16-twice", "… of a checkpoint of twice the size", "twice"),
            )
        ),
        _bucket_row(
            "bucket-inspect",
            "inspect of many leaves",
            "some_leaves",
            _surgery("inspect", "{some_leaves}"),
            _orbax("metadata", source="some_leaves"),
            writes=False,
        ),
    ]
