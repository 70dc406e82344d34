"""What tables name as text, loaded when it is asked for."""

import threading
from pkgutil import resolve_name
from typing import Any, Final

_ONE_AT_A_TIME: Final = threading.RLock()


def loaded(place: str) -> Any:
    """What stands at ``place``, as `surgery_cli.operations.rescale:Rescale`.

    Two threads that load parts of a library in another order may wait for each other, which Python ends with an error
    in one of them: so they load one after the other.
    """
    with _ONE_AT_A_TIME:
        return resolve_name(place)
