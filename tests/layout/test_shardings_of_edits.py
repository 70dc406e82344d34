"""What an edit leaves of shardings, as Orbax restores it where nobody says any: as much as fits, told if it is less."""

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from tests.layout.states import restored, save

PARTITIONS = {
    "w": P(("x", "y"), None),
    "v": P("x", "y"),
    "h_0": P("x"),
    "h_1": P(None, "x"),
    "whole": P(),
    "qkv": P(None, ("x", "y")),
}
SHAPES = {
    "w": (16, 24),
    "v": (16, 24),
    "h_0": (8, 8),
    "h_1": (8, 8),
    "whole": (8, 8),
    "qkv": (8, 24),
}
EDITS = {
    "rows that no longer divide": ("slice", {"at": "params/w", "slices": "0:10,:"}),
    "rows of which two devices are left": ("slice", {"at": "params/v", "slices": "0:10,:"}),
    "rows that divide": ("slice", {"at": "params/w", "slices": "0:8,:"}),
    "more rows": ("resize", {"at": "params/w", "axis": "0", "size": "20"}),
    "another axis": ("reshape", {"at": "params/w", "shape": "16,4,6"}),
    "too few rows": ("reshape", {"at": "params/w", "shape": "4,4,24"}),
    "stacked": ("stack", {"at": "params/h_*", "to": "params/h"}),
    "joined": ("concat", {"at": "params/h_*", "to": "params/hh", "axis": "0"}),
    "joined to one that is whole": (
        "concat",
        {"at": ["params/whole", "params/h_0"], "to": "params/hh", "axis": "0"},
    ),
    "repeated": ("repeat", {"at": "params/v", "axis": "0", "times": "2"}),
    "anew": ("reinit", {"at": "params/w", "init": "zeros", "shape": "6,10"}),
    "an axis of one": ("expand", {"at": "params/v", "axis": "1"}),
    "transposed": ("transpose", {"at": "params/v", "axes": "1,0"}),
    "cast": ("cast", {"at": "params/*", "to": "bfloat16"}),
    "a copy": ("copy", {"at": "params/v", "to": "params/twin"}),
    "like another": ("add", {"at": "params/new", "like": "params/v", "init": "zeros"}),
    "like none": (
        "add",
        {"at": "params/new", "shape": "16,16", "dtype": "float32", "init": "zeros"},
    ),
}
LESS = {
    "rows that no longer divide": ("params/w", {"x", "y"}, "whole on each device"),
    "rows of which two devices are left": (
        "params/v",
        {"x"},
        "in 2 parts over the devices of the mesh",
    ),
    "more rows": ("params/w", {"x", "y"}, "whole on each device"),
    "too few rows": ("params/w", {"x", "y"}, "whole on each device"),
    "anew": ("params/w", {"x", "y"}, "whole on each device"),
    "joined to one that is whole": ("params/hh", set(), "whole on each device"),
}
"""The param that is split over fewer devices, the mesh axes that it is no longer split over, and how it is then."""


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """Params on a mesh of 4 × 2 devices, and Adam's state of them; its count, which comes first, is on one device."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    params = {
        name: jax.device_put(
            np.arange(np.prod(shape), dtype=np.float32).reshape(shape),
            NamedSharding(mesh, PARTITIONS[name]),
        )
        for name, shape in SHAPES.items()
    }
    tree = {"params": params, "opt_state": optax.adam(1e-3).init(params)}
    return save(tmp_path_factory.mktemp("spread") / "saved", tree)


def axes(partition):
    """The mesh axes over which something is split."""
    every = (part if isinstance(part, tuple) else (part,) for part in partition)
    return {name for part in every for name in part if name is not None}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_left_of_a_sharding_is_what_fits_and_less_is_said(spread, tmp_path, edit):
    kind, fields = EDITS[edit]
    plan = plan_of([operation_from_options(kind, fields)])
    options = surgery.Options(optimizer_kind="adam")
    said = surgery.plan(str(spread), plan, options=options)
    done = surgery.apply(str(spread), str(tmp_path / "new"), plan, options=options)

    told = [note for note in done.notes if "parts before" in note]
    assert told == [note for note in said.notes if "parts before" in note]
    less, lost, how = LESS.get(edit, ("", set(), ""))
    assert len(told) == bool(less)
    if less:
        assert f"'{less}'" in told[0]
        parts = 4 if less == "params/hh" else 8
        assert told[0].startswith(f"{how}, and in {parts} parts before")

    tree = restored(tmp_path / "new")
    moments = tree["opt_state"][0]
    for name, param in tree["params"].items():
        assert {*param.sharding.device_set} == {*jax.devices()}
        for slots in ("mu", "nu"):
            assert {*moments[slots][name].sharding.device_set} == {*jax.devices()}
        if name in PARTITIONS:
            left = axes(PARTITIONS[name]) - (lost if less == f"params/{name}" else set())
            assert axes(param.sharding.spec) == left
            assert axes(moments["mu"][name].sharding.spec) == left
    jax.jit(lambda p, m, n: jax.tree.map(lambda a, b, c: a + b + c, p, m, n))(
        tree["params"], moments["mu"], moments["nu"]
    )


DONORS = {
    "a mesh of half the devices": ((2, 2), ("y", "z"), P("y", "z"), {"y"}, 4),
    "the same mesh": ((4, 2), ("x", "y"), P("y", "x"), {"x", "y"}, 0),
    "an axis more": ((2, 1, 4), ("x", "data", "z"), P(("data", "x"), None), {"x"}, 0),
    "an axis of one": ((8, 1), ("x", "data"), P(None, "data"), set(), 0),
    "one device": (None, (), None, set(), 0),
}
"""A donor's mesh and its axes, how it is split, over which axes it is here, and in how many parts it was if more."""


@pytest.mark.parametrize("here", ["on a mesh", "on one device"])
@pytest.mark.parametrize("donor", DONORS)
def test_what_comes_from_another_mesh_is_on_the_devices_of_the_rest(spread, tmp_path, donor, here):
    grid, names, partition, left, before = DONORS[donor]
    values = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    leaf = jax.numpy.asarray(values)
    if grid is not None:
        devices = np.array(jax.devices()[: np.prod(grid)]).reshape(grid)
        sharding = NamedSharding(jax.sharding.Mesh(devices, names), partition)
        leaf = jax.device_put(values, sharding)
    save(tmp_path / "donor", {"params": {"v": leaf, "new": leaf}})
    source = spread
    if here != "on a mesh":
        one = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
        source = save(tmp_path / "one", {"params": jax.tree.map(jax.numpy.asarray, one)})
    donor_text = str(tmp_path / "donor")
    edits = [
        ("add", {"at": "params/new", "with": donor_text, "from": "params/new"}),
        ("replace", {"at": "params/v", "with": donor_text, "from": "params/v"}),
    ]
    plan = plan_of([operation_from_options(kind, fields) for kind, fields in edits])
    kind = "adam" if source is spread else None
    options = surgery.Options(optimizer="reset", optimizer_kind=kind)
    done = surgery.apply(str(source), str(tmp_path / "new"), plan, options=options)
    params = restored(tmp_path / "new")["params"]
    assert len({frozenset(param.sharding.device_set) for param in params.values()}) == 1
    jax.jit(lambda tree: sum(a.sum() for a in jax.tree.leaves(tree)))(params)
    np.testing.assert_array_equal(params["new"], values)
    if here == "on a mesh":
        assert axes(params["v"].sharding.spec) == {"x", "y"}  # its place here says how
        assert axes(params["new"].sharding.spec) == left
        told = [note for note in done.notes if "parts before" in note]
        assert len(told) == bool(before)
        assert all(f"in {before} parts before: 'params/new';" in note for note in told)


@pytest.mark.parametrize("perm", ["1,0"])
def test_a_square_leaf_takes_its_mesh_axes_along_when_it_is_transposed(tmp_path, perm):
    """Its shape and chunks are what they were, and so all else on record."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    leaf = jax.device_put(values, NamedSharding(mesh, P("x", "y")))
    source = save(tmp_path / "saved", {"w": leaf})
    plan = plan_of([operation_from_options("transpose", {"at": "w", "axes": perm})])
    surgery.apply(str(source), str(tmp_path / "new"), plan)
    found = restored(tmp_path / "new")["w"]
    assert found.sharding.spec == P("y", "x")
    np.testing.assert_array_equal(found, values.T)


@pytest.mark.parametrize("edit", ["between items", "into a new item"])
def test_between_the_items_of_a_step_a_leaf_keeps_its_sharding(tmp_path, edit):
    """Though one of them has nothing but a counter on one device."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    leaf = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x")))
    items = {"acount": {"n": jax.numpy.zeros((), "int32")}, "params": {"w": leaf, "old": leaf}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        saves = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(1, args=ocp.args.Composite(**saves))
    donor = save(tmp_path / "donor", {"q": leaf})
    edits = {
        "between items": ("rename", {"at": "params/old", "to": "acount/moved"}),
        "into a new item": ("insert-item", {"as": "more", "with": str(donor)}),
    }
    plan = plan_of([operation_from_options(*edits[edit])])
    done = surgery.apply(str(tmp_path / "run"), str(tmp_path / "new"), plan)
    assert not [note for note in done.notes if "parts before" in note]
    place = "acount" if edit == "between items" else "more"
    tree = restored(tmp_path / "new" / "1" / place)
    assert tree["moved" if edit == "between items" else "q"].sharding.spec == P("x")


@pytest.fixture
def several(tmp_path):
    """A step of which one item is on a mesh, one on one device, and one of NumPy's arrays."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    leaf = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x")))
    one = {name: jax.numpy.ones((8, 8)) for name in ("a", "b")}
    items = {"state": {"w": leaf, "v": leaf}, "one": one, "stats": {"m": np.ones(3)}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        saves = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(1, args=ocp.args.Composite(**saves))
    return tmp_path / "run"


MADE = {"init": "zeros", "shape": "8", "dtype": "float32"}
PLACES = {
    "made in one": ("add", {"at": "one/new", **MADE}, "one", ""),
    "made on the mesh": ("add", {"at": "state/new", **MADE}, "state", ""),
    "copied onto one": ("copy", {"at": "state/w", "to": "one/new"}, "one", "on other devices"),
    "copied onto the mesh": (
        "copy",
        {"at": "one/a", "to": "state/new"},
        "state",
        "on other devices",
    ),
    "like what is on the mesh": (
        "add",
        {"at": "one/new", "like": "state/w", "init": "zeros"},
        "one",
        "on other devices",
    ),
    "like what is on one": (
        "add",
        {"at": "state/new", "like": "one/a", "init": "zeros"},
        "state",
        "on other devices",
    ),
    "copied among NumPy's": ("copy", {"at": "one/a", "to": "stats/new"}, "stats", ""),
    "JAX's among NumPy's": (
        "add",
        {"at": "stats/new", "kind": "array", **MADE},
        "stats",
        "",
    ),
    "of 64 bits": (
        "cast",
        {"at": "one/a", "to": "float64"},
        "one",
        "restored in 32 bits, unless",
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_what_stands_apart_from_its_item_is_said_and_nothing_else(several, tmp_path, case):
    kind, fields, item, said = PLACES[case]
    plan = plan_of([operation_from_options(kind, fields)])
    done = surgery.apply(str(several), str(tmp_path / "new"), plan)
    beginnings = ("on other devices", "no sharding is on record", "restored in 32 bits")
    told = [note for note in done.notes if note.startswith(beginnings)]
    assert len(told) == bool(said)
    assert all(note.startswith(said) for note in told)
    place = tmp_path / "new" / "1" / item
    tree = restored(place)
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    is_together = len({frozenset(leaf.sharding.device_set) for leaf in arrays}) == 1
    assert is_together != (said == "on other devices")
    if case == "of 64 bits":
        assert tree["a"].dtype == "float32"


def test_an_array_of_jax_in_a_tree_that_says_no_devices_is_said_to_need_a_target(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"m": np.ones(3)})
    plan = plan_of([operation_from_options("add", {"at": "new", "kind": "array", **MADE})])
    done = surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), plan)
    assert [n for n in done.notes if n.startswith("no sharding is on record for 'new'")]
    with pytest.raises(ValueError, match="cannot be None"):
        restored(tmp_path / "new")
