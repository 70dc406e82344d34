"""What the walk of a database's tree finds under a key, TensorStore finds there, too: it looks from the root down."""

import random
import shutil

import pytest
import tensorstore as ts

from surgery_cli.errors import CheckpointError
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.btree_nodes import ALL_KEYS, check_keys
from surgery_cli.store.orbax.extents import Extent
from tests.fuzz.ocdbt import repaired

KEYS = {
    f"params.layers_{n:02}/0.{part}": f"{n}:{part}".encode() * 40
    for n in range(12)
    for part in range(3)
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Three levels of nodes, whose bytes stand as they are."""
    folder = tmp_path_factory.mktemp("database") / "it"
    config = {"max_decoded_node_bytes": 200, "max_inline_value_bytes": 8, "compression": None}
    opened = _opened(folder, config=config)
    with ts.Transaction() as transaction:
        for key, value in KEYS.items():
            opened.with_transaction(transaction)[key] = value
    assert Survey(folder).manifest["versions"][-1]["root_height"] >= 2
    return folder


def _opened(folder, **more):
    spec = {"driver": "ocdbt", "base": f"file://{folder}/", **more}
    return ts.KvStore.open(spec, context=ts.Context()).result()


def _value(folder, value):
    if not isinstance(value, Extent):
        return value
    return (folder / value.file).read_bytes()[value.offset : value.offset + value.length]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(20))
def test_no_key_of_a_changed_node_is_found_here_and_not_there(database, tmp_path, seed):
    draw, opened = random.Random(seed), 0
    shutil.copytree(database, tmp_path / "it")
    nodes = [file for file in (tmp_path / "it" / "d").iterdir() if b"layers" in file.read_bytes()]
    for _ in range(25):
        file = draw.choice(nodes)
        whole = file.read_bytes()
        changed = bytearray(whole)
        starts = [at for at in range(len(whole)) if whole.startswith(b"layers_", at)]
        at = (
            draw.choice(starts) + draw.randrange(12)
            if draw.random() < 0.7
            else draw.randrange(len(whole))
        )
        changed[min(at, len(whole) - 1)] ^= 1 << draw.randrange(8)
        file.write_bytes(repaired(bytes(changed)))
        try:
            found = Survey(tmp_path / "it").values
        except CheckpointError:
            found = {}
        there = _opened(tmp_path / "it")
        for key, value in found.items():
            if isinstance(value, Extent) and not (tmp_path / "it" / value.file).exists():
                continue  # which `check_files` refuses
            try:
                read = there.read(key).result()
            except ValueError:  # the data file or the range in it is another
                continue
            opened += 1
            assert (read.state, read.value) == ("value", _value(tmp_path / "it", value))
        file.write_bytes(whole)
    assert opened


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([b"a"], (b"b", None)),
        ([b"a", b"c"], (b"a", b"c")),
        ([b"b", b"a"], ALL_KEYS),
        ([b"a"] * 2, ALL_KEYS),
    ],
)
def test_keys_that_do_not_belong_into_a_node_are_refused(found, expected):
    with pytest.raises(ValueError, match="do not belong there"):
        check_keys(found, expected)


def test_the_keys_of_a_node_end_before_those_of_the_next():
    check_keys([b"a", b"b"], (b"a", b"c"))
    check_keys([], (b"a", b"b"))
