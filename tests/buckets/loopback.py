"""Small servers on the loopback that take connections and answer otherwise than a service does."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Listener:
    """Answers every connection by ``talk``, each in a thread; ``came`` has what was sent first, by connection."""

    def __init__(self, talk):
        self._talk = talk
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self.came = []

    def run(self):
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with suppress(OSError), connection:
            connection.settimeout(20)
            self._talk(connection, self.came.append)

    def close(self):
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def listening(talk):
    listener = Listener(talk)
    threading.Thread(target=listener.run, daemon=True).start()
    try:
        yield listener
    finally:
        listener.close()


def read_until(connection, end):
    """What is sent up to a line's end, or some other one; less where it is hung up before."""
    got = b""
    while end not in got and (piece := connection.recv(65536)):
        got += piece
    return got


def answers(said, end=b""):
    """Says always the same, once what was sent has this in it."""

    def talk(connection, tell):
        tell(read_until(connection, end))
        connection.sendall(said)

    return talk


def speaks_tls(folder):
    """Shakes hands with a certificate that nobody trusts, and goes."""
    key, start = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(start).not_valid_after(start + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / "certificate.pem"
    file.write_bytes(
        key.private_bytes(*form, serialization.NoEncryption()) + certificate.public_bytes(form[0])
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def talk(connection, tell):
        tell(connection.recv(1, socket.MSG_PEEK))
        context.wrap_socket(connection, server_side=True).close()

    return talk
