"""What every value edit promises: a described field, an example that is a plan's edit, a digest of all it reads."""

import msgspec
import numpy as np
import pytest
from ruamel.yaml import YAML

from surgery_cli.draft.recipe import LeafRef, Recipe
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.slots import Slot
from tests.operations.value_edits import ArrayScene, ArraySource, draft_of, path_of

EDITS = [Rescale, Normalize, Replace, Reinit, Cast]


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_is_listed_and_its_own_fields_are_described(kind: type[LeafOperation]) -> None:
    assert operations()[str(kind.__struct_config__.tag)] is kind
    _, components = msgspec.json.schema_components([kind])
    fields = components[kind.__name__]["properties"]
    shared = {field.encode_name for field in msgspec.structs.fields(Operation)} | {"op"}
    assert [name for name in fields if name not in shared]
    for name in fields.keys() - shared:
        assert fields[name].get("description"), name


@pytest.mark.parametrize("kind", EDITS)
def test_the_example_is_one_edit_of_its_kind(kind: type[LeafOperation]) -> None:
    (edit,) = YAML(typ="safe").load(kind.example)
    assert isinstance(msgspec.convert(edit, kind), kind)


@pytest.mark.parametrize("edit", [Rescale(at="a", by="scale"), Replace(at="a", with_="scale")])
def test_the_digest_depends_on_the_arrays_that_are_read(edit: LeafOperation) -> None:
    scene = ArrayScene(scale=ArraySource({"a": np.ones(3, np.float32)}))
    draft = edit.rewrite(draft_of({"a": np.zeros(3, np.float32)}), scene)
    one, other = (
        msgspec.structs.replace(draft, fingerprints={"": "tree", "scale": text}).digest
        for text in ("one", "other")
    )
    assert one != other


def test_a_twin_that_follows_a_measurement_reads_the_sources_of_its_param() -> None:
    path = path_of("opt/mu/w")
    slot = Slot(path=path, param=path_of("params/w"), name="mu", power=-1)
    (operation,) = Normalize().carry(slot) or ()
    draft = draft_of({"params/w": np.ones(3, np.float32), "opt/mu/w": np.ones(3, np.float32)})
    twin = draft.leaves[path]
    param = Recipe(LeafRef("donor", path_of("w")), twin.spec)
    step = operation.step_on_twin(path, twin.spec, ArrayScene(), param)
    assert step.measured_from == param
    assert twin.then(step).sources == {"", "donor"}


def test_an_edit_that_changes_nothing_leaves_the_stored_bytes() -> None:
    tree = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float64)}
    draft = Cast(at="**", to="float32").rewrite(draft_of(tree), ArrayScene())
    assert [str(path) for path in draft.changed] == ["b"]
