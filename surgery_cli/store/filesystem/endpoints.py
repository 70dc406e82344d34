"""Where a service is that the user has set: what is wrong with the address, and whether anything is there at all."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from surgery_cli.store.filesystem.connections import (
    Nobody,
    answer_to_tls,
    connected,
    is_http,
    is_tls,
)
from surgery_cli.store.filesystem.wrong_settings import WrongSetting

PORTS: Final = {"http": 80, "https": 443}
_SCHEME: Final = re.compile(r"(?:\w+:/+)?")
_WITH_USER: Final = re.compile(r"""[^\s'"]*:[^\s'"]*@[^\s'"]*""")
_NO_TEXT: Final = re.compile(r"[\s\x00-\x1f\x7f]")


class Endpoint(NamedTuple):
    """An address, and the variables or the key in which it is set."""

    place: str
    url: str

    @property
    def told(self) -> str:
        return f"{self.place} {'are' if ' and ' in self.place else 'is'} '{shown(self.url)}'"

    @property
    def fix(self) -> str:
        return f"start what should answer there, or correct {self.place}"


def shown(url: str) -> str:
    """An address as messages have it: without a password, nor whose it is.

    >>> shown("http://me:secret@host:9000"), shown("me:secret@host"), shown("http://host/a@b")
    ('http://host:9000', 'host', 'http://host/a@b')
    >>> shown("http://me:sec/ret@host"), shown("http:/me:sec#ret@host"), shown("http://me@host")
    ('http://host', 'http:/host', 'http://host')
    """
    scheme = _SCHEME.match(url)
    front = scheme[0] if scheme else ""
    who, _, where = url.removeprefix(front).rpartition("@")
    # what is not as it should be in a password ends what is told by the rules for addresses
    return f"{front}{where}" if ":" in who or not {*who} & {*"/?#"} else url


def said_by(error: Exception) -> str:
    """What a library says, in a line, the passwords in its addresses left out."""
    said = " ".join(str(error).split())[:300]
    return _WITH_USER.sub(lambda found: shown(found[0]), said)


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
    if is_given and scheme.lower() not in PORTS:
        return "does not begin with http:// or https://"
    if "?" in url or "#" in url:
        return "has a ? or # in it"
    try:
        parts = split(url)
        is_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        is_host = False
    return "" if is_host else "has no host, or a port that is no number"


def with_small_scheme(url: str) -> str:
    """An address as all clients take it: gcsfs takes what begins with HTTP:// for a host, TensorStore does on `s3://`.

    >>> with_small_scheme("HTTP://Host:9000"), with_small_scheme("Host:9000")
    ('http://Host:9000', 'Host:9000')
    """
    scheme, is_given, rest = url.partition("://")
    return f"{scheme.lower()}{is_given}{rest}" if is_given else url


def mended(url: str) -> str:
    """What was probably meant: without spaces around it, and the slash at its end."""
    meant = url.strip()
    return meant if meant.endswith("://") else meant.rstrip("/")


def check_is_there(endpoint: Endpoint) -> None:
    """See that something takes connections there, before clients try for a minute that nobody takes, and of https that
    it speaks TLS.

    Raises:
        WrongSetting: for some seconds nothing did, there is no such host, or plain HTTP is spoken there. What else
            hinders, the client says.
    """
    host, port = _place(endpoint)
    try:
        connection = connected(host, port)
    except Nobody as error:
        raise WrongSetting(f"{endpoint.told}: {error.why}", endpoint.fix) from None
    if connection is None:
        return
    with connection:
        if split(endpoint.url).scheme != "https":
            return
        answer = answer_to_tls(connection, host)
    if answer is None or is_tls(answer):
        return
    if is_http(answer, host, port):
        meant = f"http{endpoint.url[len('https') :]}"
        raise WrongSetting(
            f"{endpoint.told}: plain http answers there, not https",
            f"write {endpoint.place} as {shown(meant)}, or let https answer there",
        )
    if answer:
        raise WrongSetting(f"{endpoint.told}: what answers there is no https", endpoint.fix)


def check_is_plain(endpoint: Endpoint) -> None:
    """See, once requests of plain HTTP have failed, whether TLS is spoken there.

    Nothing can be seen of that before the first request, unless one more is made.

    Raises:
        WrongSetting: it is.
    """
    host, port = _place(endpoint)
    if split(endpoint.url).scheme != "http":
        return
    with suppress(Nobody):
        if (connection := connected(host, port)) is None:
            return
        with connection:
            answer = answer_to_tls(connection, host)
        if is_tls(answer):
            meant = f"https://{endpoint.url.rpartition('://')[2]}"
            raise WrongSetting(
                f"{endpoint.told}: https answers there, not plain http",
                f"write {endpoint.place} as {shown(meant)}, or let plain http answer there",
            )


def _place(endpoint: Endpoint) -> tuple[str, int]:
    parts = split(endpoint.url)
    return parts.hostname or "", parts.port or PORTS[parts.scheme]
