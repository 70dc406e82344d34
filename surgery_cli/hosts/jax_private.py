"""What JAX keeps for itself of its runtime for many processes; it is known here alone.

Of that runtime the keys and values are used, and nothing that ends processes: JAX's way is to abort them, from a
thread of its own, without a word of ours. All register as the one process of a service that lets it come again, so
that nobody waits for the others, and sign off at once: keys can still be read and written, and JAX watches no more.
`tests/hosts/test_runtime.py` holds these parts to what is used of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_ONE: Final = 0
"""As which process of the service all register."""

_NEVER_SECONDS: Final = 1 << 30
"""Who signed off sends no heartbeats: the service is to miss none."""

_SHUTDOWN_SECONDS: Final = 1


def client(address: str, *, start_seconds: int) -> Any:
    """What a process reads and writes keys by, once it is reached there.

    Raises:
        Exception: it is not, for so long.
    """
    from jaxlib import _jax  # type: ignore[attr-defined]  # it has no stubs

    make = _jax.get_distributed_runtime_client
    made = make(
        address,
        _ONE,
        init_timeout=start_seconds,
        heartbeat_timeout=_NEVER_SECONDS,
        # without one, a process that does not reach it is aborted; with any, `connect` raises
        missed_heartbeat_callback=_not_called,
        # so that `shutdown` asks nobody
        shutdown_on_destruction=False,
        use_compression=True,
        **_coming_again(make),
    )
    made.connect()
    made.shutdown()
    return made


def _not_called(*_: Any) -> None:
    """What JAX would tell it cannot be made a value of Python: it fails before."""


def service(address: str) -> Any:
    """What keeps the keys, until it is no longer held."""
    from jaxlib import _jax  # type: ignore[attr-defined]  # it has no stubs

    make = _jax.get_distributed_runtime_service
    return make(
        address,
        1,
        heartbeat_timeout=_NEVER_SECONDS,
        cluster_register_timeout=_NEVER_SECONDS,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        **_coming_again(make),
    )


def _coming_again(make: Callable[..., Any]) -> dict[str, bool]:
    """That a process may register again: JAX 0.8 is told so by the clients, later ones by the service."""
    return {"recoverable": True} if "recoverable" in (make.__doc__ or "") else {}


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
