"""Work is cut by bytes: every block goes to one process, all processes cut alike, and no share is far larger."""

import itertools

import numpy as np
import pytest

from surgery_cli.engine.forecast import blocks_of
from surgery_cli.engine.shares import Share, dealt
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.surgery.preparation import prepare
from tests.hosts.companies import saved, tree_to_cut


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("cut") / "ck", tree_to_cut())


def computed(source, name, **options):
    plan = plan_of([operation_from_options(name, {"at": "params", **options})])
    prepared = prepare(str(source), plan, Options())
    return [leaf for item in prepared.plans.values() for leaf in item.computed]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64])
def test_every_block_belongs_to_one_process(cut, count):
    leaves = computed(cut, "cast", to="bfloat16")
    shares = [Share(number, count, leaves) for number in range(count)]
    for leaf in leaves:
        every = list(blocks_of(leaf))
        mine = list(itertools.chain(*(share.blocks(leaf, every) for share in shares)))
        assert sorted(map(str, mine)) == sorted(map(str, every))
        assert [share.makes(leaf) for share in shares] == [
            bool(share.blocks(leaf, every)) for share in shares
        ]
    assert all(share.bytes == shares[0].bytes for share in shares)
    assert sum(shares[0].bytes) == sum(leaf.spec.bytes for leaf in leaves)


def test_a_leaf_that_is_most_of_the_work_is_cut_at_its_blocks(cut):
    leaves = computed(cut, "cast", to="bfloat16")
    bytes_of = Share(0, 2, leaves).bytes
    assert max(bytes_of) <= 0.7 * sum(bytes_of)


def test_a_leaf_that_is_made_as_a_whole_is_not_cut(cut):
    leaves = computed(cut, "reinit", init="orthogonal")
    (large,) = (leaf for leaf in leaves if str(leaf.draft_path) == "params/embed")
    shares = [Share(number, 3, leaves) for number in range(3)]
    assert sum(share.makes(large) for share in shares) == 1


def test_no_process_gets_a_third_more_than_its_share():
    draw = np.random.default_rng(3)
    for count in (2, 3, 8, 64):
        sizes = [int(size) for size in draw.integers(1, 1000, 50 * count)]
        owners = dealt(sizes, count)
        loads = [sum(s for s, o in zip(sizes, owners, strict=True) if o == n) for n in range(count)]
        assert max(loads) <= 4 / 3 * sum(sizes) / count
