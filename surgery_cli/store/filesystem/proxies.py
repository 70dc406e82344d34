"""Through which proxies requests go: the libraries read the same variables, each by rules of its own.

gcsfs goes through none. botocore goes by Python's rules, TensorStore by those of libcurl.
"""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from surgery_cli.store.filesystem.connections import Nobody, connected
from surgery_cli.store.filesystem.endpoints import Endpoint, check_is_there, shown, split
from surgery_cli.store.filesystem.wrong_settings import WrongSetting

_answering: Final[set[tuple[str, bool]]] = set()
"""Addresses at which this process has found what it needs, and whether they are none of a proxy."""


class Proxy(NamedTuple):
    """A proxy, and the variable in which it is set; '' where that is done in the system's settings."""

    variable: str
    url: str


def proxy_of_python(url: str) -> Proxy | None:
    """The proxy through which botocore goes to an address.

    Source: ``botocore.utils.get_environ_proxies``, ``urllib.request.getproxies``.
    """
    parts = split(url)
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or urllib.request.proxy_bypass(parts.netloc):
        return None
    names = [name for name in os.environ if name.lower() == f"{parts.scheme}_proxy"]
    # one in small letters goes before others
    names = [name for name in sorted(names, reverse=True) if os.environ[name] == found]
    return Proxy(names[0] if names else "", found)


def proxy_of_curl(url: str) -> Proxy | None:
    """The proxy through which TensorStore goes to an address.

    Source: https://everything.curl.dev/usingcurl/proxies/env.html
    """
    parts = split(url)
    names = [f"{parts.scheme}_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    if parts.scheme == "http":  # in capitals, servers set it by what they are sent
        names.remove("HTTPS_PROXY")
    given = [name for name in names if os.environ.get(name)]
    if not given or _is_left_out(parts.hostname or ""):
        return None
    return Proxy(given[0], os.environ[given[0]])


def check_way(
    client: str, url: str, proxy_of: Callable[[str], Proxy | None], endpoint: Endpoint | None
) -> None:
    """See once that something takes connections where a client connects for an address: its proxy, or the address.

    ``endpoint``: that address, if the user has set it; what is right by itself is not looked at.

    Raises:
        WrongSetting: for some seconds nothing did, there is no such host, or it is not what the address says.
    """
    proxy = proxy_of(url)
    way = (proxy.url if proxy else endpoint.url if endpoint else url, proxy is None)
    if way in _answering:
        return
    if proxy is not None:
        _check_proxy(proxy, client, url)
    elif endpoint is not None:
        check_is_there(endpoint)
    _answering.add(way)


def _check_proxy(proxy: Proxy, client: str, url: str) -> None:
    try:
        parts = split(proxy.url)
        host, port = parts.hostname, parts.port
    except ValueError:  # of a port, or of brackets, which the client says
        return
    if not host or not port:  # without a port, each client takes another
        return
    try:
        if connection := connected(host, port):
            connection.close()
    except Nobody as error:
        name = proxy.variable or "the system's proxy"
        raise WrongSetting(
            f"{name} is '{shown(proxy.url)}', the proxy through which {client} goes to {shown(url)}: {error.why}",
            f"start that proxy, correct {name}, or add {split(url).hostname} to {_exceptions()}",
        ) from None


def _exceptions() -> str:
    """The variable that says where no proxy is asked: in small letters it goes before the other."""
    is_large = os.environ.get("NO_PROXY") and not os.environ.get("no_proxy")
    return "NO_PROXY" if is_large else "no_proxy"


def _is_left_out(host: str) -> bool:
    """Whether ``no_proxy`` names a host, as libcurl reads it: networks among them, and no ports.

    Source: https://github.com/curl/curl/blob/master/lib/noproxy.c
    """
    said = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if said == "*":
        return True
    for word in said.split(","):
        name = re.split(r"[ \t]", word.strip())[0].lower()
        try:
            network = ip_network(name, strict=False)
            if network.prefixlen and ip_address(host) in network:  # /0 is no network to it
                return True
        except (ValueError, TypeError):  # one of them is a name, or they are of two kinds
            name = name.removesuffix(".").removeprefix(".")
            if name and f".{host.removesuffix('.')}".endswith(f".{name}") and not _is_number(host):
                return True
    return False


def _is_number(host: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+|.*:.*", host))
