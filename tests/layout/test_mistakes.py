"""What is wrong with a layout comes in one go, and is advised with options that go with those that were given."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import pytest
from ruamel.yaml import YAML

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document, plan_of
from surgery_cli.settings.reshard import Reshard
from surgery_cli.tree.typed_shardings import parse_partition
from surgery_cli.words.advice import FieldName, Text
from tests.cli.conftest import surgery as command_line
from tests.layout.states import save, state

__all__ = ["command_line"]  # a fixture

WAYS = {"mesh", "like", "like_init"}
"""Of which one says the layout."""

SCRIPT = """
import jax, optax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

def none():
    from tests.layout.states import state
    return jax.eval_shape(state)

def uneven():
    def split(leaf):
        spec = P("fsdp") if leaf.ndim else P()
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=NamedSharding(AbstractMesh((16,), ("fsdp",)), spec)
        )
    return jax.tree.map(split, none())

def others():
    return {"params": uneven()["params"]}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    save(folder / "source", state())
    save(folder / "smaller", {"params": {"embed": jax.numpy.zeros((4, 4))}})
    save(folder / "wider", jax.tree.map(lambda leaf: leaf, {**state(), "step": jax.numpy.zeros(3)}))
    (folder / "script.py").write_text(SCRIPT)
    return folder


def problems(places: Path, target: Path, **request: Any) -> Any:
    for name in ("like", "like_init"):
        if name in request:
            request[name] = f"{places}/{request[name]}"
    plan = plan_of([], reshard=Reshard(**request))
    with pytest.raises(PlanError) as caught:
        surgery.apply(str(places / "source"), str(target), plan)
    assert not target.exists()
    return caught.value.problems


@pytest.mark.parametrize(
    "request_",
    [
        {"mesh": {"fsdp": 16}, "spec": {"params/embed": "fsdp"}},
        {"mesh": {"fsdp": 16}, "spec": {"params/**/bias": "None,fsdp"}},
        {"mesh": {"fsdp": 2}},
        {"spec": {"**": "fsdp"}},
        {"spec": {"**": "fsdp"}, "like": "source"},
        {"spec": {"**": "fsdp"}, "like_init": "script.py:none"},
        {"mesh": {"fsdp": 2}, "spec": {"**": "None"}, "like": "source"},
        {"like": "source", "like_init": "script.py:none"},
        {"like": "smaller"},
        {"like": "wider"},
        {"like_init": "script.py:uneven"},
        {"like_init": "script.py:none"},
        {"like_init": "script.py:others"},
        {"chunk_bytes": 1},
        {},
    ],
    ids=json.dumps,
)
def test_advice_names_what_goes_with_what_was_given_or_says_instead_of_what(
    places: Path, tmp_path: Path, request_: dict[str, Any]
) -> None:
    found = problems(places, tmp_path / "new", **request_)
    given = WAYS & set(request_)
    for problem in found:
        parts = problem.fix.parts if isinstance(problem.fix, Text) else ()
        advised = {part.name for part in parts if isinstance(part, FieldName)}
        if "spec" in advised - set(request_):
            assert "mesh" in advised | set(request_), problem.fix
        if len(given | advised & WAYS) > 1 and not given >= advised & WAYS:
            (other,) = given
            assert f"instead of `{other}`" in problem.fix
    assert found


def test_specs_of_a_forecast_need_a_mesh(command_line: Any, places: Path) -> None:
    found = command_line("inspect", places / "source", "--layout", "--spec", "**=fsdp")
    assert found.code == 2
    assert "`--spec` needs a `--mesh`" in found.err


def test_all_that_is_wrong_with_a_mesh_and_specs_comes_in_one_go(
    command_line: Any, places: Path, tmp_path: Path
) -> None:
    wrong = {
        "a": ["--spec", "fsdp,None"],
        "no": ["--spec", "params/dense/kernel=(fsdp"],
        "twice": ["--spec", "params/embed=fsdp", "--spec", "params/embed=None"],
        "axis": ["--spec", "params/dense/bias=fdsp"],
        "even": ["--spec", "opt_state/0/mu/embed=fsdp"],
        "many": ["--spec", "opt_state/0/nu/embed=tensor,None,None"],
        "nothing": ["--spec", "params/nowhere=fsdp"],
        "size": ["--chunk-bytes", "many"],
    }
    said = {
        "a": "takes PATTERN=PARTITION, not 'fsdp,None'",
        "no": "'(fsdp' is not a partition",
        "twice": "gives 'params/embed' twice",
        "axis": "the mesh has no axis 'fdsp'",
        "even": "40 is no multiple of 16",
        "many": "speaks of 3 axes, and the array has 2",
        "nothing": "'params/nowhere' matches nothing",
        "size": "'many' is not a size",
    }
    words = [word for words in wrong.values() for word in words]
    for command in (
        ["reshard", places / "source", tmp_path / "new", *words],
        ["inspect", places / "source", "--layout", *words[:-2]],
    ):
        for mesh in ("fsdp=16,tensor=2", "fsdp=16,fsdp=2,x=0"):
            found = command_line(*command, "--mesh", mesh)
            assert found.code == 2
            is_mesh = "tensor" in mesh
            assert is_mesh or "twice; the axis 'x' has '0' devices" in found.err
            for name, text in said.items():
                is_dropped = name == "size" and command[0] == "inspect"
                is_known = is_mesh or name not in ("axis", "even")
                assert (text in found.err) == (is_known and not is_dropped), (name, found.err)


@pytest.mark.parametrize(
    "text", ["((a,b))", "(a,(b))", "a),b", "(a", "a b", "a=b", "(a b)", "(a=b),None", "a,,b", "P(a"]
)
def test_what_is_no_partition_is_called_so_and_no_name_of_an_axis(text: str) -> None:
    with pytest.raises(PlanError, match="is not a partition"):
        parse_partition(text)


def test_a_spec_of_names_before_the_edits_says_so(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"a": jax.numpy.zeros((8, 4)), "b": jax.numpy.zeros(4)})
    plan = plan_from_document(
        {
            "edits": [{"op": "rename", "at": "a", "to": "z"}],
            "reshard": {"mesh": {"fsdp": 2}, "spec": {"a": ["fsdp"], "**": []}},
        }
    )
    with pytest.raises(PlanError, match="'a' matches nothing") as refused:
        surgery.plan(str(source), plan)
    assert "those of the result, after all edits" in str(refused.value.problems[0].why)


def test_an_empty_request_shows_one_that_can_be_pasted(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not told for what") as refused:
        surgery.plan(
            str(save(tmp_path / "source", {"a": jax.numpy.zeros(4)})),
            plan_from_document({"reshard": {}}),
        )
    for line in re.findall("`([^`]*)`", refused.value.problems[0].fix):
        plan_from_document({"reshard": {"mesh": {"fsdp": 16}, **YAML(typ="safe").load(line)}})


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ("x", "the axis 'x' has no size"),
        ("x=", "the axis 'x' has no size"),
        ("x=0", "the axis 'x' has '0' devices, and needs 1 or more"),
        ("a=2,a=4", "it has the axis 'a' twice"),
    ],
)
def test_a_mesh_that_cannot_be_read_is_said_alone(places, tmp_path, command_line, mesh, said):
    """What it needs beside it is said once it is one."""
    found = command_line("reshard", places / "source", tmp_path / "new", "--mesh", mesh)
    assert found.code == 2
    assert found.err.startswith(f"error: '{mesh}' is not a mesh\n  {said}\n")
    assert found.err.count("error: ") == 1


def test_a_mesh_beside_another_layout_is_told_of_that_alone(places, tmp_path, command_line):
    words = ["reshard", places / "source", tmp_path / "new", "--like", places / "source"]
    found = command_line(*words, "--mesh", "fsdp=8")
    assert found.code == 2
    assert "takes one of `--mesh`, `--like` and `--like-init`" in found.err
    assert "--spec" not in found.err
