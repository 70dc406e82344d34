"""Who answers at an address, as far as a single connection tells: nobody, somebody who speaks TLS, or somebody else."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from typing import Final

_PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds between looks whether something is there: it may have been started a moment before."""
_PATIENCE_SECONDS: Final = 5
_SILENCE_SECONDS: Final = 1
"""So long is waited before what was sent is ended as a request of HTTP ends: there are servers that wait for that."""
_waited_for: Final[set[tuple[str, int]]] = set()
"""Where this process has looked several times already."""
_TLS: Final = (b"\x16\x03", b"\x15\x03")
"""What answers of TLS begin with: a handshake, or an alert."""
_HTTP: Final = b"HTTP/"


class Nobody(Exception):
    """Nothing takes connections at an address, or there is no such host; ``why`` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def connected(host: str, port: int) -> socket.socket | None:
    """A connection; None where something else hinders, which the client says.

    Raises:
        Nobody: for some seconds nothing took one, or there is no such host.
    """
    pauses = () if (host, port) in _waited_for else _PAUSES
    _waited_for.add((host, port))
    for pause in (*pauses, None):
        try:
            return socket.create_connection((host, port), timeout=_PATIENCE_SECONDS)
        except ConnectionRefusedError as error:
            why = f"nothing answers there ({error.strerror})"
        except socket.gaierror as error:
            if error.errno != socket.EAI_NONAME:
                return None
            why = "there is no host of that name"
        except UnicodeError:  # a name that none can have
            raise Nobody("there is no host of that name") from None
        except OSError:
            return None
        if pause is not None:
            time.sleep(pause)
    raise Nobody(why)


def answer_to_tls(connection: socket.socket, host: str) -> bytes | None:
    """The first bytes of the answer to the beginning of a handshake; '' where it is hung up, None where none comes.

    The handshake is not gone on with: whom the certificate names, the client sees.
    """
    sent = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host).do_handshake()
    for seconds, said in ((_SILENCE_SECONDS, sent.read()), (_PATIENCE_SECONDS, b"\r\n\r\n")):
        try:
            connection.settimeout(seconds)
            connection.sendall(said)
            return connection.recv(len(_HTTP))
        except TimeoutError:
            continue
        except OSError:
            return b""
    return None


def is_tls(answer: bytes | None) -> bool:
    return answer is not None and answer.startswith(_TLS)


def is_http(answer: bytes, host: str, port: int) -> bool:
    """True if plain HTTP is spoken there: an answer to TLS says so, or one to a request of its own."""
    if answer.startswith(_HTTP):
        return True
    with suppress(OSError), socket.create_connection((host, port), _PATIENCE_SECONDS) as another:
        another.sendall(f"HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return another.recv(len(_HTTP)) == _HTTP
    return False
