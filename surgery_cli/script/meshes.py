"""A mesh that a script sets while its function is evaluated on shapes alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def settable() -> Iterator[None]:
    """While the block runs, within a trace, ``jax.set_mesh`` sets the mesh without its devices.

    ``jax.set_mesh`` itself refuses to run within a trace, where ``use_abstract_mesh`` is its like. The mesh stands
    until the end of the block, or of the ``with`` whose context it is. JAX of before either has none of this.
    """
    import jax

    homes = [home for home in (jax, jax.sharding) if hasattr(home, "set_mesh")]
    if not homes or not hasattr(jax.sharding, "use_abstract_mesh"):
        yield
        return
    real = homes[0].set_mesh
    with contextlib.ExitStack() as standing:

        class SetMesh:
            """Sets a mesh at once, and takes it back at the end of a ``with``."""

            def __init__(self, mesh: Any) -> None:
                self._own = contextlib.ExitStack()
                if mesh is not None:
                    self._own.enter_context(jax.sharding.use_abstract_mesh(mesh.abstract_mesh))
                standing.push(self._own)

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                self._own.close()

        for home in homes:
            home.set_mesh = SetMesh
        try:
            yield
        finally:
            for home in homes:
                home.set_mesh = real
