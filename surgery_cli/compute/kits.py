"""The array kit for a device as it is typed."""

from __future__ import annotations

from surgery_cli.draft.kernel import Kit
from surgery_cli.errors import SurgeryError
from surgery_cli.tree.typed_shardings import parse_mesh


def open_kit(device: str = "host", mesh: str | None = None) -> Kit:
    """The kit for ``--device`` and ``--mesh``; ``host`` loads NumPy alone.

    Raises:
        SurgeryError: the device or the mesh is not there (those that are get listed), or cannot be read.
    """
    from surgery_cli.compute import devices

    platform, index = devices.parse_device(device)
    if platform == "host":
        if mesh:
            raise SurgeryError(
                f"the mesh '{mesh}' cannot be laid over the host",
                why="a mesh spreads leaves over JAX devices, and --device is host",
                fix=f"name them: `--device gpu --mesh {mesh}`",
            )
        from surgery_cli.compute.host import HostKit

        return HostKit()
    if mesh and index is not None:
        raise SurgeryError(
            f"the mesh '{mesh}' cannot be laid over '{device}'",
            why="a mesh takes the first devices of a kind, not a single one",
            fix=f"leave out the index: `--device {platform} --mesh {mesh}`",
        )
    axes = parse_mesh(mesh) if mesh else None
    from surgery_cli.compute.jax_kit import JaxKit

    if axes:
        return JaxKit(mesh=devices.choose_mesh(platform, axes))
    return JaxKit(device=devices.choose_device(platform, index))
