"""Where a service is that the user has set: what is wrong with the address, and whether anything is there at all."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from surgery_cli.store.filesystem.wrong_settings import WrongSetting

PORTS: Final = {"http": 80, "https": 443}
_PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds between looks whether something is there: it may have been started a moment before."""
_PATIENCE_SECONDS: Final = 5
_waited_for: Final[set[str]] = set()
"""Where this process has looked several times already."""
_NO_TEXT: Final = re.compile(r"[\s\x00-\x1f\x7f]")


class Endpoint(NamedTuple):
    """An address, and the variables or the key in which it is set."""

    place: str
    url: str

    @property
    def told(self) -> str:
        return f"{self.place} {'are' if ' and ' in self.place else 'is'} '{self.url}'"

    @property
    def fix(self) -> str:
        return f"start what should answer there, or correct {self.place}"


def split(url: str) -> SplitResult:
    """The parts of an address; gcsfs and TensorStore take one without a scheme, too."""
    return urlsplit(url if "://" in url else f"http://{url}")


def fault_of(url: str) -> str:
    """What makes an address one to which nothing can be added, as the libraries do; '' if that can be done.

    >>> [fault_of(url) for url in ("http://host:9000", "host:9000/below", "ftp://host", "http://host?a")]
    ['', '', 'does not begin with http:// or https://', 'has a ? or # in it']
    """
    if _NO_TEXT.search(url):
        return "has a space in it"
    scheme, is_given, _ = url.partition("://")
    if is_given and scheme not in PORTS:
        return "does not begin with http:// or https://"
    if "?" in url or "#" in url:
        return "has a ? or # in it"
    try:
        parts = split(url)
        is_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        is_host = False
    return "" if is_host else "has no host, or a port that is no number"


def mended(url: str) -> str:
    """What was probably meant: without spaces around it, and the slash at its end."""
    meant = url.strip()
    return meant if meant.endswith("://") else meant.rstrip("/")


def check_is_there(endpoint: Endpoint) -> None:
    """See that something takes connections there, before clients try for a minute that nobody takes.

    Raises:
        WrongSetting: for some seconds nothing did, or there is no such host. What else hinders, the client says.
    """
    parts = split(endpoint.url)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return  # the connection is the proxy's
    pauses = () if endpoint.url in _waited_for else _PAUSES
    _waited_for.add(endpoint.url)
    for pause in (*pauses, None):
        try:
            address = (host, parts.port or PORTS[parts.scheme])
            socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        except ConnectionRefusedError as error:
            why = f"nothing answers there ({error.strerror})"
        except socket.gaierror as error:
            if error.errno != socket.EAI_NONAME:
                return
            why = "there is no host of that name"
        except OSError:
            return
        else:
            return
        if pause is None:
            raise WrongSetting(f"{endpoint.told}: {why}", endpoint.fix)
        time.sleep(pause)
