"""Mutants that no test can notice, since nothing that anybody sees depends on what they change."""

EXPLAINED = {
    (
        "resolution.names",
        "len(draft.leaves) > 1: GtE",
    ): "a bare leaf that is new has others beside it",
    ("tree.linear_matching", "0: 1"): "a number beside a step that no step of its kind reads",
    (
        "tree.targets",
        "False: True",
    ): "what is said of the root is said anew for the first leaf of any tree",
    (
        "operations.clip",
        "measured > self.to: GtE",
    ): "a norm that is just the bound is divided by itself, which is 1",
    ("operations.transpose", "n > axis: GtE"): "the axis itself was left out before",
    (
        "operations.rekey",
        "1: 2",
    ): "where a leaf stays, the first place alone is taken; below a leaf is no node",
}
"""Why, by the module and the change."""
