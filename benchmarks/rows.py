"""The table: which tasks are measured, and how each contender does them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SURGERY, ORBAX, COPY, LOOP = "surgery", "Orbax script", "cp -r", "TensorStore loop"

KERNEL = "params.layer_0.kernel"
MU, NU = ("opt_state.0.mu.layer_0.kernel", "opt_state.0.nu.layer_0.kernel")


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


@dataclass(frozen=True)
class Places:
    """Where a row finds its checkpoints; ``edited`` is a copy of ``source`` with one leaf edited."""

    source: Path
    donor: Path
    edited: Path
    leaves: Path
    destination: Path


@dataclass(frozen=True)
class Contender:
    """One way to do a task; ``command`` makes its command line."""

    name: str
    command: Callable[[Places], list[str]]
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


def _surgery(command: str, *words: str) -> Contender:
    def line(places: Places) -> list[str]:
        named = {name: str(path) for name, path in vars(places).items()}
        given = [word.format(**named) for word in (command, *words)]
        return [sys.executable, "-m", "surgery_cli", *given]

    return Contender(SURGERY, line)


def _edit(command: str, *words: str, source: str = "{source}") -> Contender:
    return _surgery(command, source, "{destination}", *words, "--quiet")


def _script(
    name: str, file: str, task: str, *, source: str = "source", donor: bool = False
) -> Contender:
    def line(places: Places) -> list[str]:
        given = [task, str(getattr(places, source)), str(places.destination)]
        with_donor = ["--donor", str(places.donor)] if donor else []
        return [sys.executable, str(HERE / file), *given, *with_donor]

    return Contender(name, line)


def _orbax(task: str, **options: bool | str) -> Contender:
    return _script(ORBAX, "recipe.py", task, **options)


def _loop(task: str, **options: bool | str) -> Contender:
    return _script(LOOP, "loop.py", task, **options)


def _copy() -> Contender:
    return Contender(COPY, lambda places: ["cp", "-r", str(places.source), str(places.destination)])


def _python(name: str, code: str) -> Contender:
    return Contender(name, lambda _: [sys.executable, "-c", code])


MEMORY = ("--memory", "256MiB")
LEAF = ("params/layer_0/kernel", "--by", "0.5")
MANY = ("params/layer_00007/kernel", "--by", "0.5")


def table() -> list[Row]:
    """Every row, none of them measured yet; a new row or contender is a line here."""
    return [
        Row(
            "leaf",
            "one leaf rescaled",
            (_edit("rescale", *LEAF, "--optimizer", "keep"), _orbax("leaf"), _copy()),
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
            (_edit("rename", "params/layer_0", "--to", "params/first"), _orbax("rename"), _copy()),
            compared=("params.first.kernel", "opt_state.0.mu.first.kernel"),
        ),
        Row(
            "graft",
            "one layer from a donor",
            (
                _edit("replace", "params/layer_0", "--with", "{donor}", "--optimizer", "keep"),
                _orbax("graft", donor=True),
                _copy(),
            ),
            compared=(KERNEL,),
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
        ),
        Row(
            "leaves-inspect",
            "many leaves: inspect",
            (_surgery("inspect", "{leaves}"), _orbax("metadata", source="leaves")),
            writes=False,
        ),
        Row(
            "leaves-plan",
            "many leaves: plan",
            (_surgery("rescale", "{leaves}", "{destination}", *MANY, "--dry-run"),),
            writes=False,
        ),
        Row(
            "leaves-edit",
            "many leaves: one edited",
            (_edit("rescale", *MANY, source="{leaves}"),),
        ),
    ]
