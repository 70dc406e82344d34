"""The training script's function that makes its state: imported, and evaluated on shapes alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.script.abstract_tree import AbstractTree, abstract_tree, described
from surgery_cli.script.user_code import UserObject, load_object
from surgery_cli.tree.dtypes import family
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

Say = Callable[[str], None]

_EXAMPLE: Final = "name a function: `train.py:create_state`, or `train.py:create_state(10)`"

_SHAPES_ALONE: Final = {
    (
        "Tracer",
        "Concretization",
    ): "the function is evaluated on shapes alone (`jax.eval_shape`), where values cannot be"
    " read: leave data and printing out of it",
    (
        "set_mesh",
    ): "the function is evaluated on shapes alone (`jax.eval_shape`), where no mesh can be set, and none is"
    " needed: set it at the top of the file, or name a function that makes the state without it",
    (
        "Number of devices",
        "number of devices",
    ): "the script's mesh has more devices than this machine: set"
    " `XLA_FLAGS=--xla_force_host_platform_device_count=N` with N its devices, all on the CPU",
}
"""What makes a function fail that works where the script runs, by what the errors say of it; what to do."""


class Script(msgspec.Struct, frozen=True):
    """What the script's function returns, and how the user named it."""

    name: str
    abstract: AbstractTree


def read_script(text: str, *, say: Say = lambda _: None, device: str = "host") -> Script:
    """Import the user's file and evaluate the function on shapes alone.

    Raises:
        SurgeryError: the file, the name or the function is wrong; the user's own line is shown.
    """
    user = load_script(text, say=say, device=device)
    try:
        called = callable(user.value)
        abstract = abstract_tree(user.call) if called else described(user.value)
    except SurgeryError as error:
        raise SurgeryError.of(_explained(problem) for problem in error.problems) from None
    if not abstract.tree:
        raise PlanError(f"'{text}' returns no leaf", fix="return what the script restores into")
    _refuse_objects(abstract, user)
    _refuse_single_leaf(abstract, user)
    return Script(text, abstract)


def load_script(text: str, *, say: Say = lambda _: None, device: str = "host") -> UserObject:
    """Import the user's file; on the host no accelerator is started.

    Raises:
        SurgeryError: the file, the name or the import is wrong.
    """
    if device in ("host", "cpu") and "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a look at shapes starts no accelerator
    return load_object(text, say=say, example=_EXAMPLE)


def _explained(problem: Problem) -> Problem:
    """Say why a function that works when it runs may fail on shapes, or on this machine."""
    fix = next(
        (
            text
            for signs, text in _SHAPES_ALONE.items()
            if any(sign in problem.why for sign in signs)
        ),
        problem.fix,
    )
    return msgspec.structs.replace(problem, fix=fix)


def _refuse_single_leaf(abstract: AbstractTree, user: UserObject) -> None:
    """What a script restores into has leaves below names; one value alone is something else."""
    spec = abstract.tree.get(LeafPath())
    if spec is None:
        return
    number = f"a Python number ({family(spec.dtype)})"
    is_number = spec.kind is LeafKind.SCALAR
    raise PlanError(
        f"'{user.spec.name}' returns {number if is_number else spec.type_text}, which is no tree",
        fix="return what the script restores into: a TrainState, a dict, NNX modules or their states",
    )


def _refuse_objects(abstract: AbstractTree, user: UserObject) -> None:
    """A leaf that is neither an array, a number nor a string cannot be in a checkpoint."""
    strange = [
        p for p, s in abstract.tree.items() if s.kind is LeafKind.STRING and s.dtype != "str"
    ]
    if strange:
        path = strange[0]
        raise PlanError(
            f"'{user.spec.name}' returns a '{abstract.tree[path].dtype}'",
            why=f"at '{path or '.'}'; a checkpoint holds arrays, numbers and strings",
            fix="return what the script gives to Orbax",
        )
