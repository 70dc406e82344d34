"""What earlier runs say of a leaf is told under whatever name it had, and of nothing that only had its name."""

from types import SimpleNamespace

from surgery_cli.proof.record_parts import ChangedLeaf, entries_of


def run(*leaves):
    found = [
        ChangedLeaf(path=path, from_=origin, operations=[word], before=None, after="float32[2]")
        for path, origin, word in leaves
    ]
    return SimpleNamespace(leaves=found)


def test_a_leaf_is_followed_through_names_until_it_was_made_anew():
    runs = [
        run(("c", "b", "rename"), ("other", "other", "cast")),
        run(),
        run(("b", "a", "rename"), ("c", "c", "permute")),
        run(("a", None, "add"), ("b", "b", "cast")),
        run(("a", "a", "permute")),
    ]
    told = [(leaf, entry.path, *entry.operations) for leaf, entry in entries_of(runs, ["c", "d"])]
    assert told == [("c", "c", "rename"), ("c", "b", "rename"), ("c", "a", "add")]
