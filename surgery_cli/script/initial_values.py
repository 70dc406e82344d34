"""What the training script's own function gives for some leaves: values, where all else looks at shapes alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from surgery_cli.script.abstract_tree import leaves_of, settable_mesh
from surgery_cli.script.function import Say, load_script
from surgery_cli.tree.paths import LeafPath


def initial_values(
    text: str, paths: Collection[LeafPath], *, say: Say = lambda _: None
) -> dict[LeafPath, Any]:
    """The leaves at these paths of what a function returns: arrays, texts, Python numbers.

    The function is compiled as a whole with these as its results, so that nothing else is held, and nothing that they
    do not need is computed. A typed random key is given as its data.

    Raises:
        SurgeryError: the file, the name or the function is wrong; the user's own line is shown.
    """
    import jax
    import numpy as np

    user = load_script(text, say=say)
    plain: dict[LeafPath, Any] = {}
    traced_paths: list[LeafPath] = []

    def traced() -> list[Any]:
        with settable_mesh():
            returned = user.call() if callable(user.value) else user.value
            found = {path: leaf for path, leaf in leaves_of(returned) if path in paths}
        plain.update({path: leaf for path, leaf in found.items() if not hasattr(leaf, "dtype")})
        traced_paths[:] = [path for path in found if path not in plain]
        return [
            jax.random.key_data(leaf)
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
            for leaf in map(found.__getitem__, traced_paths)
        ]

    values = jax.jit(traced)()
    return dict(zip(traced_paths, map(np.asarray, values), strict=True)) | plain
