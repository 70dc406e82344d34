"""Mutants that no test can notice, since nothing that anybody sees depends on what they change."""

UNREAD = "a number beside a step that no step of its kind reads"
EXPLAINED = {
    (
        "draft.expression",
        "for number, (part, whole) in enumerate(zip(inputs, wholes, strict=True))",
        "True: False",
    ): "as many wholes as inputs, or it is left before",
    (
        "resolution.selection",
        "n for n, (a, b) in enumerate(zip(slot.param, slot.path, strict=False), 1) if a != b",
        "False: True",
    ): "two leaves differ before either path ends",
    (
        "resolution.names",
        "if LeafPath() in draft.leaves and len(draft.leaves) > 1:",
        "len(draft.leaves) > 1: GtE",
    ): "a bare leaf that is new has others beside it",
    (
        "resolution.names",
        "close = nearest(str(path[0]), items, 1)",
        "1: 2",
    ): "only the nearest is named",
    (
        "tree.linear_matching",
        'steps += [("one", re.compile(re.escape(c), re.DOTALL), 0) for c in text]',
        "0: 1",
    ): UNREAD,
    (
        "tree.linear_matching",
        'steps.append(("one", re.compile(test, re.DOTALL), 0))',
        "0: 1",
    ): UNREAD,
    ("tree.linear_matching", 'steps.append(("look", re.compile(test), 0))', "0: 1"): UNREAD,
    (
        "tree.linear_matching",
        'steps += [("either", None, at + 3), ("one", each, 0), ("go", None, at)]',
        "0: 1",
    ): UNREAD,
    ("tree.linear_matching", 'steps.append(("mark", mark, 0))', "0: 1"): UNREAD,
    ("tree.linear_matching", 'steps.append(("mark", mark + 1, 0))', "0: 1"): UNREAD,
    (
        "tree.linear_matching",
        'steps.append(("either", None, 0))',
        "0: 1",
    ): "it is written over once its other way is known",
    (
        "tree.linear_matching",
        'steps.append(("go", None, 0))',
        "0: 1",
    ): "it is written over once its end is known",
    (
        "engine.digests",
        "return np.ascontiguousarray(values).reshape(-1).view(np.uint8)",
        "1: 2",
    ): "NumPy takes any negative number for the size that is left",
    (
        "tree.number_parts",
        "below = _written_out(rests[is_end:]) if len(rests) > is_end else []",
        "len(rests) > is_end: GtE",
    ): "of no rests nothing is written out either way",
    (
        "tree.targets",
        "self.is_sequence: dict[LeafPath, bool] = {LeafPath(): False}",
        "False: True",
    ): "what is said of the root is said anew for the first leaf of any tree",
    (
        "tree.targets",
        "for count in range(len(parts), 0, -1):",
        "0: 1",
    ): "a first key alone is what it says, whether it is there or not",
    (
        "operations.clip",
        "is_above = measured > self.to",
        "measured > self.to: GtE",
    ): "a norm that is just the bound is divided by itself, which is 1",
    (
        "operations.transpose",
        "rest = tuple(n - (n > axis) for n in self.axes if n != axis)",
        "n > axis: GtE",
    ): "the axis itself was left out before",
    (
        "operations.rekey",
        "left = (old for old, news in whole.items() if news[:1] != (old,))",
        "1: 2",
    ): "a leaf that is copied leaves no gap in the list where it stays",
    (
        "operations.rekey",
        "stay = {path: stand_ins.get(path, relation.get(path, (path,)))[:1] for path in draft.leaves}",
        "1: 2",
    ): "the first place alone is taken",
    (
        "operations.rekey",
        "for depth in range(len(node), len(leaf) + 1)",
        "1: 2",
    ): "below a leaf is no node",
    (
        "draft.digest",
        "parts = zip(DigestPart(), (source, list(donors), list(donors.values())), strict=True)",
        "True: False",
    ): "three parts, and three values",
    (
        "draft.kernels.scale",
        "far = math.inf if power > 0 else 0.0",
        "power > 0: GtE",
    ): "whatever a factor is, its power of 0 is 1",
    (
        "draft.kernels.scale",
        "return size.min() if power > 0 else size.max()",
        "power > 0: GtE",
    ): "whatever a factor is, its power of 0 is 1",
}
"""Why, by the module, the line and the change."""
