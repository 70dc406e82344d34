"""What every value edit promises: a described field, an example that is a plan's edit, a digest of all it reads."""

import msgspec
import numpy as np
import pytest
from ruamel.yaml import YAML

from surgery_cli.draft.expression import LeafRef, Stored, stored_in
from surgery_cli.draft.slots import Slot
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.follow.transform import followed
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    draft_of,
    drafted_example,
    path_of,
    rewritten,
    spec_of,
)

EDITS = [kind for kind in operations().values() if issubclass(kind, LeafOperation)]


@pytest.mark.parametrize("kind", EDITS)
def test_the_fields_of_an_edit_are_described(kind: type[LeafOperation]) -> None:
    _, components = msgspec.json.schema_components([kind])
    fields = components[kind.__name__]["properties"]
    shared = {field.encode_name for field in msgspec.structs.fields(Operation)} | {"op"}
    for name in fields.keys() - shared:
        assert fields[name].get("description"), name


@pytest.mark.parametrize("kind", EDITS)
def test_the_example_is_one_edit_of_its_kind(kind: type[LeafOperation]) -> None:
    (edit,) = YAML(typ="safe").load(kind.example)
    assert isinstance(msgspec.convert(edit, kind), kind)


@pytest.mark.parametrize("edit", [Rescale(at="a", by="scale"), Replace(at="a", with_="scale")])
def test_the_digest_depends_on_the_arrays_that_are_read(edit: LeafOperation) -> None:
    scene = ArrayScene(scale=ArraySource({"a": np.ones(3, np.float32)}))
    draft = rewritten(edit, draft_of({"a": np.zeros(3, np.float32)}), scene)
    one, other = (
        msgspec.structs.replace(draft, fingerprints={"": "tree", "scale": text}).digest
        for text in ("one", "other")
    )
    assert one != other


def test_a_twin_that_follows_a_measurement_reads_the_sources_of_its_param() -> None:
    path = path_of("opt/mu/w")
    slot = Slot(path=path, param=path_of("params/w"), name="mu", power=-1)
    leaf = Stored(LeafRef("donor", path_of("w")), spec_of(np.ones(3, np.float32)))
    edit = Normalize()
    effect = edit.effect_on(edit.made(path_of("params/w"), leaf, ArrayScene()), leaf.spec)
    twin = draft_of({"opt/mu/w": np.ones(3, np.float32)}).leaves[path]
    (change,) = followed(slot, twin.recipe, effect) or ()
    assert {one.ref.source for one in stored_in(change.recipe)} == {"", "donor"}


def test_an_edit_that_changes_nothing_leaves_the_stored_bytes() -> None:
    tree = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float64)}
    draft = rewritten(Cast(at="**", to="float32"), draft_of(tree), ArrayScene())
    assert [str(path) for path in draft.changed] == ["b"]


DIGESTS = {
    "rescale": "sha256:1c3abfda3751375106746dc345282ccebd4a56df50576c598d38afb562958132",
    "normalize": "sha256:1c3abfda37513751f87bc019466bd55b428fdb9f4b98ff791e6da2f0a5d70d5b",
    "replace": "sha256:1c3abfda37513751e65752bf33495739328e93d3769cc9590c0d76e31b7889a3",
    "reinit": "sha256:1c3abfda37513751602958dfaf3c6e6524471b4447cf89b3b6248fd296251f50",
    "average": "sha256:1c3abfdabca35fafff4a1b184d20594729e2ea64a7cdcf073880dbc8ec41df6c",
    "add-scaled": "sha256:1c3abfdabca35faf0dad94c3a74468e3c1cedf84b323e87db64f1b14dfbb5d3a",
    "swa": "sha256:1c3abfdabca35fafe2c92707b11eafcf3e308491ffb88467af17f9f220acfba7",
    "ema": "sha256:1c3abfdabca35fafd125ba06c96fe14f76dd0df584325ee5ea3a1defbb7406e9",
    "interpolate": "sha256:1c3abfdabca35faf7fd44ce0987c4e8e8e267fb2aab398b53e90920674da5022",
    "task-arithmetic": "sha256:1c3abfdabf9893c04d7443322980a46fd83e3f7d1f67f848b0d7cc0299ead7d5",
    "ties": "sha256:1c3abfdabf9893c0e86a9a03c8b7021f7deed6d087355ddd98420b5d92209b5c",
    "dare": "sha256:1c3abfdabf9893c0bae53f6af60ef1497dbca48c622bab0b0edb81ff5a90d40b",
    "breadcrumbs": "sha256:1c3abfdabf9893c031ebafbbd2711a2918de3f55c8e4ebe700af72ea714fe9c8",
    "model-stock": "sha256:1c3abfdabf9893c03e49212a488ae61a073078e2f383d48a2ab83771de1928b2",
    "karcher": "sha256:1c3abfdabf9893c01b4336d1b17076759ef60d9994fed9e50907daee7df1c8ce",
    "merge-lora": "sha256:1c3abfda342eabeb2a0d9b3ac346880c29bc1d4adabd8e83c5c0a9fb0a6841d2",
    "unmerge-lora": "sha256:1c3abfda342eabeb2245b34b5aa58cd7dbf5c6d4fe362b2518ed050630443f30",
    "extract-lora": "sha256:1c3abfdabca35faf32cd27d8e6ed14ab3ded03176a5515bcf2c84cc4364e31aa",
    "clip": "sha256:1c3abfda37513751bad4b6b69cf3179128a4b76ae5857c4d1f21cd763a2de067",
    "prune": "sha256:1c3abfda37513751058d7e423a536f67205c42998fc37e60e09634b83044233e",
    "mask": "sha256:1c3abfda3273a779da7f34a6ef9c1b666ec4bf76cd611cd2cc6504ea8d121f8e",
    "noise": "sha256:1c3abfda37513751105c9b06693995213084cbaac29854dbaae690f99c7755c0",
    "shrink-and-perturb": "sha256:1c3abfda3751375111e96f00d5c4a9c8977807800d0fe8cf800a335d281225cc",
    "map": "sha256:1c3abfda375137514369cd72ed37f6b7e672ae591ca95282df212732c351bd1c",
    "cast": "sha256:1c3abfda37513751a501897d16aac4796aa603e40651945d2968e1ca4137846f",
    "set": "sha256:1c3abfda37513751f8291fe72c1eb7e4c6f8697278063d583ff85656c237cc4c",
    "reset-optimizer": "sha256:1c3abfda37513751fd5469468d97e07d25016ba8969ffc945d80d7ab374a307e",
    "rename": "sha256:1c3abfda3751375140e03f9e5838c64b800d5a27168ca15ccf2d5c50981839cf",
    "copy": "sha256:1c3abfda37513751da2a85974cc12b410cb7547ad53bf007866c7eb7900e2969",
    "delete": "sha256:1c3abfda37513751f43bdb2334355b8d52769bcd3cd1aad590d7dcffd03b5f0f",
    "keep": "sha256:1c3abfda3751375120e55a4478f8b4e49466b8d4115589662f1ccb446b68fd8f",
    "extract-item": "sha256:1c3abfda37513751e97ea5f4ea4ab1ec93a26ecdc7541d889ba905faf20ef62c",
    "insert-item": "sha256:1c3abfda9bb4d16342b316df6ea2dc2d5e70de99592f0e4abb53e93218781567",
    "transpose": "sha256:1c3abfda37513751c9848c35886ea0b40757f22d7da31d84fe0d903acd31ef71",
    "reshape": "sha256:1c3abfda37513751fc063aaa1fc344aa44345b40965520ad85fba7b1bb41a8de",
    "squeeze": "sha256:1c3abfda37513751e86e52f44d872e52ef63d5d8038dec6265489e9995a51e6b",
    "expand": "sha256:1c3abfda375137516bd13e9cc8c6cf5b66dc424384d8964bf963529d53c8b477",
    "permute": "sha256:1c3abfda37513751d55b9b0d7c4f10370708d64984da6980373f329b76ea9986",
    "slice": "sha256:1c3abfda37513751fcab4025c9debe5f302499229ba5fe59707f86ba5e0fdde2",
    "pad": "sha256:1c3abfda375137515424cc45e2b0b3d428dbca347f8d1c79cae72144ea1cc27d",
    "resize": "sha256:1c3abfda37513751edcc7a64a9b4cbe3bb636a5b467f22b4a8cf97b6cdcc5474",
    "repeat": "sha256:1c3abfda37513751eb3d8b3b8f314fd815bad51765b64e4a6bd80ac6f75f063c",
    "interpolate-positions": "sha256:1c3abfda375137518226cc4478028fd93557680d03597e3441e6cc7231ced26b",
    "stack": "sha256:1c3abfda375137510e3d6b9e5f76003d4d998efad1e7e7048a4929f22648e8f4",
    "unstack": "sha256:1c3abfda37513751718c565df6007514105a54ee7037396cbc6b5e260c669d03",
    "add": "sha256:1c3abfda37513751be10d04fb4359b40a9f4974ed009c48e83fd29307e4f881e",
    "split": "sha256:1c3abfda375137512f075008978f695aa77785dcae12ca6a83a1327d116e3879",
    "concat": "sha256:1c3abfda375137510a9b7340c5bfbedf85aeb35a97e223109122a1057a2fa4b4",
    "flatten": "sha256:1c3abfda3751375186fdc966013d72b94742a43d743088c6085475df39b806dd",
    "unflatten": "sha256:1c3abfda37513751b9794a801974be618047f08fdbfb62bdff4514e9036e83f9",
    "to-dict": "sha256:1c3abfda37513751e86e52f44d872e52ef63d5d8038dec6265489e9995a51e6b",
    "to-list": "sha256:1c3abfda3751375135d9c27090744d58191e90ce1301b076362c1850e1bd5c4c",
    "merge": "sha256:1c3abfdabca35faf5fdf4e0bd08c60c84c7cc346c9f75f520347a80a2791302f",
    "intersect": "sha256:1c3abfda37513751e86e52f44d872e52ef63d5d8038dec6265489e9995a51e6b",
    "assert": "sha256:1c3abfda37513751e86e52f44d872e52ef63d5d8038dec6265489e9995a51e6b",
}
"""Of the draft that the example of each operation makes; they change only where the change log says so."""


@pytest.mark.parametrize("name", list(operations()))
def test_the_digest_of_the_example_of_every_operation_is_this_one(name: str) -> None:
    draft, _ = drafted_example(operations()[name], np.zeros((4, 3), np.float32))
    assert name in DIGESTS, f'add `"{name}": "{draft.digest}",` to DIGESTS'
    assert draft.digest == DIGESTS[name]
