"""A new layout beside edits is that of the same edits followed by `reshard`: chunks, shardings and values."""

import ast
import json
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.reshard import Reshard
from tests.layout.states import LAYOUTS, NAMES, restored, save, values
from tests.layout.test_shardings_of_edits import EDITS, spread_state

OPTIONS = surgery.Options(optimizer_kind="adam")
NEW = {**EDITS, "as a donor's": ("merge", {"with": "donor", "both": "ours"})}
SPECS: dict[str, dict[str, list[str | None]]] = {
    "every param": {"params/**": ["a"]},
    "one that stays": {"params/whole": [None, "b"]},
}


@pytest.fixture(scope="module", params=LAYOUTS, ids=NAMES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ocdbt, zarr3 = request.param
    folder = tmp_path_factory.mktemp("saved")
    save(folder / "here", spread_state(), ocdbt=ocdbt, zarr3=zarr3)
    other = spread_state()
    other["params"] = {"of_donor": jax.device_put(np.ones((24, 16), np.float32), jax.devices()[0])}
    other["opt_state"] = optax.adam(1e-3).init(other["params"])
    save(folder / "donor", other, ocdbt=ocdbt, zarr3=zarr3)
    return folder


def grids(path: Path) -> dict[str, tuple]:
    """By TensorStore, what of every array is stored whole, and what can be decoded alone."""
    document = json.loads((path / "_METADATA").read_text())
    ocdbt, zarr3 = document["use_ocdbt"], document["use_zarr3"]
    found = {}
    for text in document["tree_metadata"]:
        name = ".".join(map(str, ast.literal_eval(text)))  # a tuple of keys, as Orbax writes it
        base = f"file://{path}/" + ("|ocdbt:" + name + "/" if ocdbt else name + "/")
        spec = {"driver": "zarr3" if zarr3 else "zarr", "kvstore": base}
        try:
            layout = ts.open(spec, read=True).result().chunk_layout
        except ValueError:
            continue  # no array
        found[name] = layout.write_chunk.shape, layout.read_chunk.shape
    return found


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("edit", NEW)
def test_one_run_gives_what_two_give(saved: Path, tmp_path: Path, edit: str, spec: str) -> None:
    kind, fields = NEW[edit]
    if "with" in fields:
        fields = {**fields, "with": str(saved / fields["with"])}
    edits = [operation_from_options(kind, fields)]
    to = Reshard(mesh={"a": 2, "b": 4}, spec=SPECS[spec])
    source, once, edited, twice = (
        str(path) for path in (saved / "here", *(tmp_path / n for n in ("once", "edited", "twice")))
    )
    surgery.apply(source, edited, plan_of(edits), options=OPTIONS)
    try:
        surgery.apply(edited, twice, plan_of([], reshard=to), options=OPTIONS)
    except SurgeryError as refusal:
        with pytest.raises(type(refusal)):
            surgery.apply(source, once, plan_of(edits, reshard=to), options=OPTIONS)
        return
    surgery.apply(source, once, plan_of(edits, reshard=to), options=OPTIONS)
    a, b = restored(Path(once)), restored(Path(twice))
    assert values(a) == values(b)
    assert jax.tree.map(lambda x: x.sharding, a) == jax.tree.map(lambda x: x.sharding, b)
    assert grids(Path(once)) == grids(Path(twice)) != {}
