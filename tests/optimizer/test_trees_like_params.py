"""Trees like the params outside of optimizer state: an average, or the moments of an optimizer of the script's own.

Metadata cannot tell them apart. Whatever brings values into such a tree that were not in it is refused, unless the name
of the tree or ``slots:`` says what it is; and what ``slots:`` says is obeyed as it is below ``opt_state``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import yaml

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.compute.host import HostKit
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.surgery.assumed import assumed_states
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from tests.operations.value_edits import example_on
from tests.optimizer.optax_registry import train_state
from tests.oracle.editing import InMemory

SHAPE = (4, 3)
FIRST = LeafPath(("params", "Dense_0", "kernel"))
MOMENTS = {
    "beside params": lambda m, v: {"m1": m, "v": v},
    "by optax's names": lambda m, v: {"mu": m, "nu": v, "count": np.int32(3)},
    "by names of averages": lambda m, v: {"exp_avg": m, "exp_avg_sq": v},
    "in a dict": lambda m, v: {"moments": {"first": m, "second": v}},
    "in a list": lambda m, v: {"adam": [m, v]},
    "beside an optimizer state": lambda m, v: {"opt_state": {"trace": m}, "fisher": v},
}  # fmt: skip
UNSAID = {
    "beside params": ("m1", "v"),
    "by optax's names": ("mu", "nu"),
    "by names of averages": ("exp_avg", "exp_avg_sq"),
    "in a dict": ("moments/first", "moments/second"),
    "in a list": ("adam/0", "adam/1"),
    "beside an optimizer state": ("fisher",),
}
"""The trees of which nothing says what they are."""

PARAMS_BY_NAME = {
    "averages": lambda m, v: {"ema": m, "params_ema": v},
    "targets": lambda m, v: {"target_params": m, "teacher": {"params": v}},
}
NAMING_A_STATE = {"extract-item", "reset-optimizer", "to-dict", "to-list"}
"""Operations whose example names an optimizer state, or what has none."""

EXAMPLES = [(name, {}) for name in sorted(operations().keys() - NAMING_A_STATE)]
EDITS = [
    *EXAMPLES,
    ("resize", {"fill": "normal", "stddev": 0.1}),
    ("pad", {"value": -1.0}),
    ("reinit", {"shape": [6, 5]}),
    ("interpolate-positions", {"method": "cubic"}),
]
"""Every operation, by its example, and others that put other values beside the old ones."""


def network(seed: int, *, is_square: bool = False) -> dict[str, Any]:
    draws = np.random.default_rng(seed)
    values = {
        layer: {key: draws.normal(size=SHAPE).astype(np.float32) for key in ("bias", "kernel")}
        for layer in ("Dense_0", "Dense_1")
    }
    return {
        layer: {key: np.square(leaf) if is_square else leaf for key, leaf in leaves.items()}
        for layer, leaves in values.items()
    }


def in_memory(layout: Any, seed: int) -> InMemory:
    trees = layout(network(seed + 1), network(seed + 2, is_square=True))
    return InMemory({"params": network(seed), "step": np.int32(3), **trees})


def done(name: str, layout: Any, **told: Any) -> tuple[Draft, Mapping[LeafPath, Any], InMemory]:
    """An operation's example: the draft, all values after it, and what they were made of."""
    own, other = in_memory(layout, 0), in_memory(layout, 10)
    draft, sources = example_on(operations()[name], own, other, other.values[FIRST], **told)

    def value(recipe: Any) -> Any:
        evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
        return evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))

    leaves = draft.leaves.items()
    return draft, {p: value(leaf.recipe) for p, leaf in leaves if leaf.spec.has_array}, own


def trees_with_new_values(draft: Draft, after: Mapping[LeafPath, Any], own: InMemory) -> set[str]:
    """The trees beside params in which something stands that stood in none of their leaves; named leaves apart."""
    old = np.concatenate(
        [own.values[p].ravel() for p in own.values if p[0] not in ("params", "step", "count")]
    )
    return {
        str(draft.slots[path].node)
        for path, values in after.items()
        if path in draft.slots and not draft.slots[path].in_optimizer
        if not any(edit.is_named for edit in draft.leaves[path].edits if path not in draft.slots)
        if not np.isin(values, old.astype(values.dtype)).all()
    }


def refused_for(name: str, layout: str, **told: Any) -> set[str]:
    """The trees because of which an operation's example is refused; what else is wrong with it is raised."""
    try:
        draft, *_ = done(name, MOMENTS[layout], **told)
    except PlanError as error:
        if any(problem.field != "slots" for problem in error.problems):
            raise
        return {str(problem.path) for problem in error.problems}
    assert not any(taken.taken_for.startswith("a copy") for taken in assumed_states(draft))
    return set()


@pytest.mark.parametrize("layout", MOMENTS)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_no_edit_puts_values_into_a_tree_of_unknown_meaning(
    name: str, fields: dict[str, Any], layout: str
) -> None:
    """Which do is seen in the values that a copy gets where it is said to be one."""
    copies = {node: {"copy": True} for node in UNSAID[layout]}
    new = trees_with_new_values(*done(name, MOMENTS[layout], slots=copies, **fields))
    assert refused_for(name, layout, **fields) == new


def test_the_sweep_meets_edits_that_bring_new_values() -> None:
    found = {name for name, fields in EDITS if refused_for(name, "in a dict", **fields)}
    assert found >= {"add", "pad", "reinit", "resize", "interpolate-positions"}


def entries_in(advice: str) -> list[dict[str, Any]]:
    """The entries of ``slots:`` that a piece of advice has: the first as a whole, the others in its place."""
    whole, *others = re.findall(r"`(\{.*?\}|slots: \{.*?\}\})`", advice)
    (node,) = yaml.safe_load(whole)["slots"]
    first = yaml.safe_load(whole)["slots"]
    return [first, *({node: yaml.safe_load(other)} for other in others)]


@pytest.mark.parametrize("layout", MOMENTS)
@pytest.mark.parametrize("name", ["add", "pad", "reinit", "resize"])
def test_every_entry_that_the_refusal_names_is_whole(name: str, layout: str) -> None:
    """Pasted for each tree, whichever of them is true, the edit runs."""
    fields = next(fields for one, fields in reversed(EDITS) if one == name)
    with pytest.raises(PlanError) as refused:
        done(name, MOMENTS[layout], **fields)
    entries = [entries_in(problem.fix) for problem in refused.value.problems]
    assert {node for each in entries for one in each for node in one} == set(UNSAID[layout])
    assert {len(each) for each in entries} == {4}
    for same in zip(*entries, strict=True):
        slots = {node: said for entry in same for node, said in entry.items()}
        draft, after, own = done(name, MOMENTS[layout], slots=slots, **fields)
        new = trees_with_new_values(draft, after, own)
        assert bool(new) == any("copy" in said for said in slots.values())


@pytest.mark.parametrize("layout", PARAMS_BY_NAME)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_nothing_is_assumed_of_what_is_named_as_params(
    name: str, fields: dict[str, Any], layout: str
) -> None:
    assert assumed_states(done(name, PARAMS_BY_NAME[layout], **fields)[0]) == []


# --- what the user says of them ---------------------------------------------------------------------------


def powers_of(first: str, second: str) -> dict[str, dict[str, Any]]:
    squares = {"power": -2, "even": True, "second_moment": True, "fresh": 0.0}
    return {first: {"power": -1, "fresh": 0.0}, second: squares}


TOLD = {
    "beside params": powers_of("m1", "v"),
    "by optax's names": powers_of("mu", "nu"),
    "by names of averages": powers_of("exp_avg", "exp_avg_sq"),
    "in a dict": powers_of("moments/first", "moments/second"),
    "in a list": powers_of("adam/0", "adam/1"),
}


def test_entries_for_a_copy_of_a_part_say_whose_it_is() -> None:
    """Two layers are alike, so that without its place nothing tells which of them it may copy."""
    tree = InMemory(
        {
            "params": {"a": network(0), "b": network(1)},
            "opt_state": {"trace": {"a": network(2), "b": network(3)}},
            "old": {"b": network(4)},
        }
    ).tree
    place = LeafPath(("old", "b", "Dense_0", "kernel"))
    slot = survey(tree).slots[place]
    assert slot.assumed is not None
    *kinds, ignored = entries_in(slot.assumed.settled_by)
    for entry in kinds:
        told = survey(tree, slots=entry)
        assert told.questions == []
        assert told.slots[place].assumed is None
        assert str(told.slots[place].param) == "params/b/Dense_0/kernel"
    assert place not in survey(tree, slots=ignored).slots


def values_below(node: str, after: Mapping[LeafPath, Any]) -> dict[str, Any]:
    return {
        str(path).removeprefix(f"{node}/"): values
        for path, values in after.items()
        if str(path).startswith(f"{node}/")
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("policy", [None, "keep", "transform", "reset", "warm"])
@pytest.mark.parametrize("layout", TOLD)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_what_is_said_of_slots_holds_wherever_they_stand(
    name: str, fields: dict[str, Any], layout: str, policy: str | None
) -> None:
    """As below ``opt_state``, or as refused there; and no square is negative."""
    more = {} if policy is None else {"optimizer": policy}
    told, usual = TOLD[layout], powers_of("opt_state/m", "opt_state/v")
    try:
        below = done(
            name, lambda m, v: {"opt_state": {"m": m, "v": v}}, slots=usual, **fields, **more
        )
    except PlanError:
        with pytest.raises(PlanError):
            done(name, MOMENTS[layout], slots=told, **fields, **more)
        return
    draft, after, _ = done(name, MOMENTS[layout], slots=told, **fields, **more)
    assert [each.taken_for for each in assumed_states(draft)] == [
        each.taken_for for each in assumed_states(below[0])
    ]
    for node, own in zip(told, usual, strict=True):
        found, wanted = values_below(node, after), values_below(own, below[1])
        assert found.keys() == wanted.keys()
        for path, values in found.items():
            np.testing.assert_array_equal(values, wanted[path], f"{node}/{path}")
    assert all((values >= 0).all() for values in values_below(list(told)[1], after).values())


def asked(found: OptimizerSurvey, node: str) -> bool:
    paths = [problem.path or "" for problem in found.questions]
    return any(
        f"{path}/".startswith(f"{node}/") or f"{node}/".startswith(f"{path}/") for path in paths
    )


def part_of_an_average(m: Any, v: Any) -> dict[str, Any]:
    kernels = {layer: {"kernel": leaves["kernel"]} for layer, leaves in v.items()}
    return {"opt_state": {"trace": m}, "ema": kernels}


def trees() -> dict[str, TreeSpec]:
    layouts = MOMENTS | PARAMS_BY_NAME | {"a part of an average": part_of_an_average}
    beside = {name: in_memory(layout, 0).tree for name, layout in layouts.items()}
    optimizers = ("adam", "multisteps", "adafactor", "partition_2", "sm3")
    return beside | {name: train_state(name) for name in optimizers}


def test_a_part_of_an_average_is_what_the_user_says() -> None:
    tree, said = in_memory(part_of_an_average, 0).tree, {"of": "params/Dense_0", "power": -2}
    found = survey(tree, slots={"ema/Dense_0": said}).slots
    told = {str(path): slot.power for path, slot in found.items() if path[0] == "ema"}
    assert told == {"ema/Dense_0/kernel": -2, "ema/Dense_1/kernel": 1}


@pytest.mark.parametrize("name", trees())
def test_what_is_said_of_a_node_is_obeyed_or_refused(name: str) -> None:
    """Of every node and every leaf of the tree: nothing that the user says is dropped."""
    tree = trees()[name]
    for place in {*tree.nodes, *tree} - {LeafPath()}:
        node, counts = str(place), (place in tree and tree[place].shape == ())
        for hint in ({"power": 5}, {"ignore": True}):
            try:
                found = survey(tree, slots={node: hint})
            except PlanError:
                continue
            below = [
                slot
                for slot in found.slots.values()
                if slot.path.is_below(place) and slot.relation != "hole"
            ]
            if "ignore" in hint:
                assert not below, node
            else:
                said = below and all(slot.power == 5 and slot.in_optimizer for slot in below)
                assert said or asked(found, node) or counts, node


# --- one of two -----------------------------------------------------------------------------------------------

HALVES = [
    *EXAMPLES,
    ("rescale", {"by": 0.5, "optimizer": "transform"}),
    ("rescale", {"by": 0.5, "optimizer": "reset"}),
    ("reinit", {"optimizer": "reset"}),
    ("reset-optimizer", {"at": "params", "clocks": False}),
    ("reset-optimizer", {"at": "params/Dense_0", "clocks": False}),
]


def has_other_values(node: str, after: Mapping[LeafPath, Any], own: InMemory) -> bool:
    """True if something stands in a tree that did not stand there before."""
    old = np.concatenate([v.ravel() for v in values_below(node, own.values).values()])
    return any(
        not np.isin(v, old.astype(v.dtype)).all() for v in values_below(node, after).values()
    )


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("layout", TOLD)
@pytest.mark.parametrize(("name", "fields"), HALVES)
def test_one_of_two_trees_never_follows_alone(
    name: str, fields: dict[str, Any], layout: str, which: int
) -> None:
    told, other = (list(TOLD[layout].items())[at] for at in (which, 1 - which))
    slots = dict([told])
    try:
        _, after, own = done(name, MOMENTS[layout], slots=slots, **fields)
    except PlanError as refused:
        if {problem.path for problem in refused.problems} != {other[0]}:
            raise
        alone = done(name, MOMENTS[layout], slots={**slots, other[0]: {"ignore": True}}, **fields)
        copy = done(name, MOMENTS[layout], slots={**slots, other[0]: {"copy": True}}, **fields)
        assert has_other_values(told[0], *alone[1:]) or has_other_values(other[0], *copy[1:])
        return
    assert not has_other_values(told[0], after, own)


@pytest.mark.parametrize("said", [{"ignore": True}, {"copy": True}, {"power": -2, "even": True}])
@pytest.mark.parametrize("layout", TOLD)
def test_one_of_two_trees_follows_once_the_other_is_said(layout: str, said: dict[str, Any]) -> None:
    (first, known), (second, _) = TOLD[layout].items()
    _, after, own = done("rescale", MOMENTS[layout], slots={first: known, second: said}, by=0.5)
    for node, factor in ((first, 2.0), (second, 4.0 if "power" in said else 1.0)):
        for key, values in values_below(node, after).items():
            before = own.values[LeafPath((*node_keys(node), *key.split("/")))]
            is_named = LeafPath(("params", *key.split("/"))) == FIRST
            np.testing.assert_array_equal(values, before * np.float32(factor if is_named else 1))


def node_keys(node: str) -> list[str | int]:
    return [int(key) if key.isdigit() else key for key in node.split("/")]


# --- signs of even powers ---------------------------------------------------------------------------------

FACTORS = {
    "a number": -2.0,
    "an array": [[1.0, -2.0, 4.0]] * 4,
    "an array of positives": [[2.0] * 3] * 4,
}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("even", [None, True, False])
@pytest.mark.parametrize("power", [-2, -1, 0, 2])
@pytest.mark.parametrize("below", ["opt", "moments"])
def test_signs_of_an_even_power_follow_a_negative_factor_as_is_said(
    below: str, power: int, even: bool | None, factor: str, tmp_path: Path
) -> None:
    values, slot = network(0), network(1)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "old", {"params": values, below: {"slot": slot}})
    by: Any = FACTORS[factor]
    if isinstance(by, list):
        np.save(tmp_path / "by.npy", np.array(by, np.float32))
        by = str(tmp_path / "by.npy")
    edit = {"op": "rescale", "at": "params/Dense_0/kernel", "by": by}
    slots = {f"{below}/slot": {"power": power} | ({} if even is None else {"even": even})}
    c = np.array(FACTORS[factor], np.float32)
    if power % 2 == 0 and even is None and (c < 0).any():
        kind = PlanError if c.ndim == 0 else ValueRefusal
        with pytest.raises(kind, match="nothing says whether its signs follow") as refused:
            applied(tmp_path / "old", tmp_path / "new", edit, slots=slots)
        assert "even: true" in refused.value.problems[0].fix
        assert not (tmp_path / "new").exists()
        return
    _, found = applied(tmp_path / "old", tmp_path / "new", edit, slots=slots)
    sign = np.float32(1) if even else np.sign(c)
    wanted = slot["Dense_0"]["kernel"] * sign * np.abs(c) ** power
    np.testing.assert_allclose(found[below]["slot"]["Dense_0"]["kernel"], wanted, 1e-6)


def test_a_record_keeps_that_signs_were_not_said(trained: tuple[Path, Any], tmp_path: Path) -> None:
    slots = {"m1": {"power": -1}, "v": {"power": -2}}
    rescale = {"op": "rescale", "at": "params/Dense_0/kernel", "by": 2.0}
    applied(trained[0], tmp_path / "first", rescale, slots=slots)
    with pytest.raises(PlanError, match="nothing says whether its signs follow"):
        applied(tmp_path / "first", tmp_path / "second", rescale | {"by": -2.0})
    squares = {"v": {"power": -2, "even": True}}
    _, found = applied(
        tmp_path / "first", tmp_path / "third", rescale | {"by": -2.0}, slots=squares
    )
    np.testing.assert_array_equal(
        found["v"]["Dense_0"]["kernel"], trained[1]["v"]["Dense_0"]["kernel"] / np.float32(16)
    )


@pytest.mark.parametrize("said", [{}, {"even": True}])
def test_new_places_of_an_even_power_hold_no_zeros(
    trained: tuple[Path, Any], tmp_path: Path, said: dict[str, Any]
) -> None:
    """It may hold squares, by whose roots an optimizer divides."""
    slots = {"m1": {"power": -1}, "v": {"power": -2, **said}}
    _, found = applied(trained[0], tmp_path / "new", RESIZE, slots=slots)
    assert (found["v"]["Dense_0"]["kernel"][:, 3:] > 0).all()


# --- what is said where a start is missing ------------------------------------------------------------------


def below_opt(m: Any, v: Any) -> dict[str, Any]:
    return {"opt": {"exp_avg": m, "exp_avg_sq": v}}


STARTLESS = {
    "unknown": (below_opt, {}, ("opt/exp_avg", "opt/exp_avg_sq")),
    "told below `opt`": (below_opt, powers_of("opt/exp_avg", "opt/exp_avg_sq"), None),
    "told beside params": (MOMENTS["beside params"], powers_of("m1", "v"), None),
}


@pytest.mark.parametrize("state", STARTLESS)
@pytest.mark.parametrize("name", ["add", "reinit"])
def test_one_line_has_the_whole_entry_that_a_start_needs(name: str, state: str) -> None:
    """Once for each tree, and with what was said of it before: put in its place, the edit runs."""
    layout, said, _ = STARTLESS[state]
    slots = {node: {k: v for k, v in each.items() if k != "fresh"} for node, each in said.items()}
    fields = {"shape": [6, 5], "init": "normal"} if name == "reinit" else {}
    with pytest.raises(PlanError) as refused:
        done(name, layout, slots=slots, **fields)
    problems = refused.value.problems
    assert "unknown's" not in str(refused.value)
    assert "like named in" not in str(refused.value)
    nodes = STARTLESS[state][2] or tuple(said)
    assert tuple(problem.path for problem in problems) == nodes
    entries: dict[str, Any] = {}
    for problem in problems:
        (line,) = re.findall(r"`slots: (.*?)`", problem.fix)
        entries |= yaml.safe_load(line.replace("X", "0"))
    for node, entry in entries.items():
        assert entry == {"power": "K", **slots.get(node, {}), "fresh": 0}
    powers = {node: {**entry, "power": -1} for node, entry in entries.items()}
    assert done(name, layout, slots=entries if said else powers, **fields)


def test_a_note_gives_the_way_that_settles_all_of_them_once() -> None:
    draft, *_ = done("rescale", below_opt)
    (note,) = [str(note) for note in draft.notes if "are kept as they were" in str(note)]
    assert note.count("--like-init") == 1
    assert note.count("slots: {opt/exp_avg: {power: K}}") == 1
    assert note.count("slots: {opt/exp_avg_sq: {power: K}}") == 1


# --- runs on disk ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What a script saves that has written Adam itself, with an average of the params."""
    m, v = network(1), network(2, is_square=True)
    tree = {"params": network(0), "m1": m, "v": v, "ema": network(3), "t": np.int32(3)}
    path = tmp_path_factory.mktemp("trained") / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path, tree


def applied(source: Path, destination: Path, edit: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    plan = plan_from_document({"edits": [edit], **more})
    report = surgery.apply(str(source), str(destination), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        return report, checkpointer.restore(destination)


RESIZE = {
    "op": "resize",
    "at": "params/Dense_0/kernel",
    "axis": 1,
    "size": 5,
    "fill": "normal",
    "stddev": 0.1,
}
"""New places get values of both signs."""

SHORT = {"m1": {"power": -1}, "v": {"power": -2, "even": True}}


def test_a_quiet_run_ends_before_any_work_and_names_both_trees(
    trained: tuple[Path, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"edits": [RESIZE]}))
    for command in (["apply", str(trained[0]), str(tmp_path / "new")], ["plan", str(trained[0])]):
        with pytest.raises(SystemExit) as ended:
            run([*command, str(plan), "-q"])
        assert ended.value.code == 2
        said = capfd.readouterr().err
        for node in ("m1", "v"):
            assert f"'{node}' would get new values as a copy of 'params'" in said
            assert f"slots: {{{node}: {{power: -1, fresh: 0}}}}" in said
    assert not (tmp_path / "new").exists()


def test_a_stated_copy_goes_with_its_params_and_a_later_run_remembers_it(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    slots = {"m1": {"copy": True}, "v": {"power": -2, "even": True, "fresh": 0}}
    report, found = applied(trained[0], tmp_path / "first", RESIZE, slots=slots)
    assert report.assumptions == []
    assert np.abs(found["m1"]["Dense_0"]["kernel"][:, 3:]).min() > 0
    rescale = {"op": "rescale", "at": "params/Dense_0/kernel", "by": 4.0}
    report, second = applied(tmp_path / "first", tmp_path / "second", rescale)
    for name, factor in (("params", 4.0), ("m1", 1.0), ("v", 1 / 16), ("ema", 1.0)):
        before = found[name]["Dense_0"]["kernel"]
        np.testing.assert_array_equal(
            second[name]["Dense_0"]["kernel"], before * np.float32(factor)
        )
    _, third = applied(tmp_path / "second", tmp_path / "third", RESIZE | {"size": 7})
    assert np.abs(third["m1"]["Dense_0"]["kernel"][:, 5:]).min() > 0


@pytest.mark.parametrize("more", [{"power": -1}, {"ignore": True}, {"fresh": 0}, {"even": False}])
def test_a_copy_has_nothing_else_said_of_it(more: dict[str, Any]) -> None:
    tree = in_memory(MOMENTS["beside params"], 0).tree
    with pytest.raises(PlanError, match="a copy of the params, and more"):
        survey(tree, slots={"v": {"copy": True, **more}})
    assert survey(tree, slots={"v": {"copy": True, "of": "params"}}).slots


def test_stated_moments_have_new_places_as_their_kind_has(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    old = trained[1]
    report, found = applied(trained[0], tmp_path / "new", RESIZE, slots=SHORT)
    assert report.assumptions == []
    m, v = (found[name]["Dense_0"]["kernel"] for name in ("m1", "v"))
    before = old["v"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(m, np.pad(old["m1"]["Dense_0"]["kernel"], ((0, 0), (0, 2))))
    np.testing.assert_array_equal(v[:, :3], before)
    np.testing.assert_allclose(v[:, 3:], np.repeat(before.mean(1, keepdims=True), 2, 1), 1e-6)
    assert np.abs(found["ema"]["Dense_0"]["kernel"][:, 3:]).min() > 0


def test_a_later_run_remembers_what_was_said(trained: tuple[Path, Any], tmp_path: Path) -> None:
    old = trained[1]
    applied(trained[0], tmp_path / "first", RESIZE, slots=SHORT)
    rescale = {"op": "rescale", "at": "params/Dense_1/kernel", "by": 4.0}
    report, found = applied(tmp_path / "first", tmp_path / "second", rescale)
    assert report.edits[0].twins == {"transform": 2}
    for name, factor in (("params", 4.0), ("m1", 1 / 4), ("v", 1 / 16), ("ema", 1.0)):
        before = old[name]["Dense_1"]["kernel"]
        np.testing.assert_array_equal(found[name]["Dense_1"]["kernel"], before * np.float32(factor))
    _, third = applied(tmp_path / "second", tmp_path / "third", RESIZE | {"size": 7})
    assert (third["v"]["Dense_0"]["kernel"] >= 0).all()


@pytest.mark.parametrize("name", ["v", "ema"])
@pytest.mark.parametrize("said", [{"copy": True}, {"power": -1}], ids=["copies", "slots"])
def test_what_is_ignored_is_left_alone(
    trained: tuple[Path, Any], tmp_path: Path, name: str, said: dict[str, Any]
) -> None:
    slots = {"m1": said, "v": said} | {name: {"ignore": True}}
    _, found = applied(trained[0], tmp_path / "new", RESIZE, slots=slots)
    before = trained[1][name]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(found[name]["Dense_0"]["kernel"], before)


def test_a_record_of_one_of_two_trees_is_no_word_of_the_other(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    shorter = {"op": "resize", "at": "params/Dense_0/kernel", "axis": 1, "size": 2}
    applied(trained[0], tmp_path / "first", shorter, slots={"m1": {"power": -1}})
    rescale = {"op": "rescale", "at": "params/Dense_1/kernel", "by": 4.0}
    with pytest.raises(PlanError, match="nothing says what 'v' beside it is"):
        applied(tmp_path / "first", tmp_path / "second", rescale)
    squares = {"v": {"power": -2, "even": True}}
    _, found = applied(tmp_path / "first", tmp_path / "third", rescale, slots=squares)
    for name, factor in (("m1", 1 / 4), ("v", 1 / 16)):
        before = trained[1][name]["Dense_1"]["kernel"]
        np.testing.assert_array_equal(found[name]["Dense_1"]["kernel"], before * np.float32(factor))


def test_a_reset_takes_one_of_two_trees_only_by_its_name(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    slots = {"m1": {"power": -1, "fresh": 0}}
    with pytest.raises(PlanError, match="nothing says what 'v' beside it is"):
        applied(trained[0], tmp_path / "all", {"op": "reset-optimizer"}, slots=slots)
    named = {"op": "reset-optimizer", "at": "m1"}
    _, found = applied(trained[0], tmp_path / "one", named, slots=slots)
    assert not found["m1"]["Dense_0"]["kernel"].any()
    before = trained[1]["v"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(found["v"]["Dense_0"]["kernel"], before)


def test_stated_moments_may_be_put_into_a_state_one_by_one(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    rename = {"op": "rename", "at": "v", "to": "opt_state/v"}
    report, _ = applied(trained[0], tmp_path / "new", rename, slots=SHORT)
    assert report.consequences == []


def test_a_factor_says_what_it_leaves_and_inspect_what_is_assumed(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    report, found = applied(
        trained[0], tmp_path / "new", {"op": "rescale", "at": "params", "by": 2.0}
    )
    np.testing.assert_array_equal(
        found["v"]["Dense_0"]["kernel"], trained[1]["v"]["Dense_0"]["kernel"]
    )
    (said,) = [str(note) for note in report.consequences]
    assert "'ema', 'm1', 'v'" in said
    assert "`slots: {m1: {power: K}, v: {power: K}}`" in said
    notes = [str(note) for note in surgery.inspect(str(trained[0]), optimizer=True).notes]
    assert sum("is taken for a copy of 'params'" in note for note in notes) == 2
