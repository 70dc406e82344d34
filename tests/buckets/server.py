"""What servers on the loopback have in common that stand for services: a log of requests, delays, and faults as they
happen on the way to a service.
"""

import asyncio
import itertools
import re
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from surgery_cli.store.filesystem.background import IN_BACKGROUND

PATIENCE_SECONDS = 120
"""A limit of waiting for what comes at once, but on a machine that does much else."""

_ASKED = re.compile(r"([A-Z]+) (\S+) HTTP/1\.[01]")
_PIECE = 1 << 20
"""So much of a body goes and comes at once, in bytes."""


@dataclass
class Request:
    method: str
    path: str
    query: dict
    headers: dict
    body: bytes
    status: object = None
    sent: int = 0
    kind: str = ""
    target: str = ""


@dataclass
class Faults:
    """``every``: one request in so many fails as ``kind`` says; 0 for none. ``latency``: seconds before an answer.

    ``among``: of requests of which kinds. ``are_held``: of which kinds requests wait until there are other faults;
    whose client has gone, is not obeyed.
    """

    kind: str = ""
    every: int = 0
    latency: float = 0.0
    among: Callable[[str], bool] = lambda kind: True
    are_held: Callable[[str], bool] = lambda kind: False


class Server(ABC):
    """Serves from ``__enter__`` on, in a thread of its own; answers come from its children."""

    scheme = ""

    def __init__(self):
        self._log = []
        self._under_way = 0
        self.faults = Faults()
        self.before = lambda request: None
        """Called with every request before it is answered: what others do meanwhile."""
        self._served = itertools.count(1)

    def reset(self):
        """Empty buckets, no faults, and nothing on its way that an earlier test asked for."""
        self.faults = Faults()
        self.before = lambda request: None
        self.log.clear()

    @property
    def log(self):
        """The requests that came, when none is on its way any more (within the server: those that came so far).

        A command may end before what it asked for ahead was answered: who counts would else count too few, or those
        of the test before.
        """
        if threading.current_thread() is not self._thread:
            self.settle()
        return self._log

    def settle(self):
        """Return when no request is on its way that this process asked for, or that a killed one sent."""
        for thread in threading.enumerate():
            if thread.name == IN_BACKGROUND:
                thread.join(PATIENCE_SECONDS)
        asyncio.run_coroutine_threadsafe(self._all_answered(), self._loop).result(PATIENCE_SECONDS)

    async def _all_answered(self):
        await asyncio.sleep(0)  # what a process sent that was killed since is read first
        await self._is_quiet.wait()

    def __enter__(self):
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(PATIENCE_SECONDS)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def root(self):
        """The address of the bucket of the tests."""
        return f"{self.scheme}://bkt"

    @abstractmethod
    def put(self, bucket, name, data):
        """Make or replace an object."""

    @abstractmethod
    def names(self, begin=""):
        """The objects in the bucket of the tests, sorted."""

    @abstractmethod
    def content(self, name):
        """What an object in the bucket of the tests holds."""

    @abstractmethod
    def version(self, name):
        """What tells an object in the bucket of the tests from one that was put in its place."""

    @abstractmethod
    def remove(self, name):
        """Delete an object in the bucket of the tests."""

    @abstractmethod
    def kind_of(self, request):
        """What is asked for, in a word."""

    @abstractmethod
    async def answer(self, request):
        """Status, headers and body."""

    @abstractmethod
    def refusal(self, status, said):
        """As ``answer``, where the service fails or says no."""

    def upload(self, folder, address):
        """Put a file, or all files below a folder, into a bucket, as the services' own tools do; gives the address."""
        bucket, _, key = address.removeprefix(f"{self.scheme}://").partition("/")
        if folder.is_file():
            self.put(bucket, key, folder.read_bytes())
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(bucket, f"{key}/{file.relative_to(folder)}", file.read_bytes())
        return address

    def kinds(self):
        """How many requests of each kind came."""
        counted = {}
        for request in self.log:
            counted[request.kind] = counted.get(request.kind, 0) + 1
        return counted

    def _run(self, started):
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._serve(started))
        finally:
            self._loop.close()

    async def _serve(self, started):
        self._stopped = asyncio.Event()
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=1 << 26, backlog=256)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        server.close()
        talks = asyncio.all_tasks() - {asyncio.current_task()}
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed is told so

    async def _talk(self, reader, writer):
        # else large bodies go in small pieces, each with a turn of the loop, and the server takes more than the client
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        try:
            while True:
                try:
                    request = await self._received(reader, writer)
                except ValueError:  # no HTTP, the beginning of TLS for one
                    writer.write(b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n")
                    break
                self._log.append(request)
                if not await self._accounted(request, reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _accounted(self, request, reader, writer):
        self._under_way += 1
        self._is_quiet.clear()
        try:
            return await self._answered(request, reader, writer)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_quiet.set()

    async def _received(self, reader, writer):
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        if not (asked := _ASKED.fullmatch(first)):
            raise ValueError(first)
        method, target = asked.groups()
        headers = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b""
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int((await reader.readline()).split(b";")[0], 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        elif "content-length" in headers:
            left, pieces = int(headers["content-length"]), []
            while left:
                pieces.append(await reader.readexactly(min(left, _PIECE)))
                left -= len(pieces[-1])
            body = b"".join(pieces)
        path, _, query = target.partition("?")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        request = Request(method, path, asked, headers, body, target=target)
        request.kind = self.kind_of(request)
        return request

    async def _answered(self, request, reader, writer):
        """False where the connection is at its end."""
        while self.faults.are_held(self.kind_of(request)):
            await asyncio.sleep(0.005)
            if reader.at_eof():
                return False
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        every = self.faults.every
        is_among = every and self.faults.among(request.kind)
        fault = self.faults.kind if is_among and next(self._served) % every == 0 else ""
        if fault.isdigit():
            request.status = int(fault)
            said = {"401": "Anonymous caller has no access"}.get(fault, "injected")
            await self._send(writer, request, self.refusal(int(fault), said))
            return True
        if fault == "reset":
            request.status = "reset"
            return self._reset(writer)
        self.before(request)
        answer = await self.answer(request)
        request.status = answer[0]
        if fault == "lost":
            request.status = f"lost({answer[0]})"
            return self._reset(writer)
        is_cut = fault == "cut" and len(answer[2]) > 10
        await self._send(writer, request, answer, is_cut=is_cut)
        return not is_cut

    def _reset(self, writer):
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False

    async def _send(self, writer, request, answer, *, is_cut=False):
        status, headers, body = answer
        if status not in (204, 304):
            headers = {"Content-Length": len(body), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode())
        sent = b"" if request.method == "HEAD" else body[: len(body) // 2] if is_cut else body
        request.sent = len(sent)
        # what the socket does not take at once is copied, and moved with each piece that goes: so no more than a piece
        for at in range(0, len(sent), _PIECE):
            writer.write(memoryview(sent)[at : at + _PIECE])
            await writer.drain()
