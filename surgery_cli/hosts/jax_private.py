"""What JAX keeps for itself of its runtime for many processes; it is known here alone.

`tests/hosts/test_runtime.py` holds these parts to what is used of them.
"""

from __future__ import annotations

from typing import Any, Final

_HEARTBEAT_SECONDS: Final = 100
"""After which JAX itself takes a process for lost; ours are found out long before."""


def client(address: str, number: int, *, start_seconds: int) -> Any:
    """What a process reads and writes keys by; `connect` waits until all are there."""
    from jaxlib import _jax  # type: ignore[attr-defined]  # it has no stubs

    return _jax.get_distributed_runtime_client(
        address,
        number,
        init_timeout=start_seconds,
        heartbeat_timeout=_HEARTBEAT_SECONDS,
        # without one, a process that is turned away is aborted; with any, `connect` raises
        missed_heartbeat_callback=_not_called,
        shutdown_on_destruction=False,
        use_compression=True,
    )


def _not_called(*_: Any) -> None:
    """What JAX would tell it cannot be made a value of Python: it fails before."""


def service(address: str, count: int, *, start_seconds: int, shutdown_seconds: int) -> Any:
    """What keeps the keys for so many processes, until it is no longer held."""
    from jaxlib import _jax  # type: ignore[attr-defined]  # it has no stubs

    return _jax.get_distributed_runtime_service(
        address,
        count,
        heartbeat_timeout=_HEARTBEAT_SECONDS,
        cluster_register_timeout=start_seconds,
        shutdown_timeout=shutdown_seconds,
    )


def detect(
    address: str | None, number: int | None, count: int | None, *, start_seconds: int
) -> tuple[str | None, int | None, int | None]:
    """Address, number and count of processes, where they are None as the process's surroundings say.

    Raises:
        Exception: whatever JAX's detection of clusters raises.
    """
    from jax._src.clusters import ClusterEnv

    found = ClusterEnv.auto_detect_unset_distributed_params(
        address, count, number, [], None, start_seconds
    )
    address, count, number, _ = found
    return address, number, count
