"""Which tests hold which module: those that should fail at any change of it."""

ROWS = {
    "tree.paths": (
        *("tests/test_paths.py", "tests/test_globs.py", "tests/test_resolution.py", "tests/cli/test_limits.py"),
    ),
    "tree.number_ranges": ("tests/test_number_ranges.py", "tests/test_globs.py", "tests/test_paths.py"),
    "tree.number_parts": ("tests/test_number_ranges.py", "tests/test_globs.py", "tests/test_paths.py"),
    "tree.linear_matching": ("tests/test_globs.py",),
    "tree.targets": ("tests/test_paths.py", "tests/operations/test_rename.py", "tests/operations/test_copy.py"),
    "resolution.selection": ("tests/test_resolution.py", "tests/test_paths.py"),
    "resolution.names": ("tests/test_resolution.py", "tests/operations/test_rename.py"),
    "operations.collisions": ("tests/operations/test_rename.py", "tests/operations/test_copy.py"),
    "operations.rekey": tuple(f"tests/operations/test_{name}.py" for name in ("rename", "copy", "delete")),
    "operations.rescale": ("tests/operations/test_rescale.py", "tests/operations/test_value_contract.py"),
    "operations.clip": ("tests/operations/test_clip.py", "tests/operations/test_value_contract.py"),
    "operations.transpose": ("tests/operations/test_transpose.py", "tests/operations/test_rearranging.py"),
    "operations.numbered": ("tests/operations/test_stack.py", "tests/operations/test_split.py"),
    "draft.effect": ("tests/operations/test_effects.py", "tests/optimizer/test_policies.py"),
    "draft.expression": ("tests/draft/test_normal_form.py", "tests/engine/test_expressions.py"),
    "draft.digest": ("tests/test_resolution.py", "tests/operations/test_value_contract.py"),
    "draft.kernels.scale": ("tests/operations/test_rescale.py", "tests/operations/test_value_contract.py"),
    "draft.kernels.take": ("tests/draft/test_shape_maps.py", "tests/operations/test_rearranging.py"),
    "engine.digests": ("tests/verification/test_checked_source.py", "tests/test_seal.py", "tests/test_records.py"),
    "inputs.limits": ("tests/cli/test_limits.py",),
    "store.files.msgpack_cursor": ("tests/store/test_msgpack_tree.py",),
}  # fmt: skip
"""By the module, below `surgery_cli`."""

SURVIVED = "tests/mutants/test_what_survived.py"


def tests_of(module):
    """The tests that hold a module, those that mutants asked for among them."""
    return (SURVIVED, *ROWS[module])
