"""A bucket for the rows of the benchmark that need one: the tests' server, in a process of its own.

`bucket.py` serves `gs://bench` with 20 ms added to every request, and does what lines on its standard input ask for.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

HERE = Path(__file__).resolve().parent
LATENCY = 0.02
BUCKET = "bench"
MARK = "commit_success.txt"
# else each upload is kept in pages that the system has to clear first: that would be what is measured
_KEEPS_ITS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


class Bucket:
    """The server, from where the benchmark stands: `with Bucket() as bucket`."""

    def __enter__(self) -> Self:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parent,
            env={**os.environ, **_KEEPS_ITS_MEMORY},
        )
        self.environment: dict[str, str] = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def upload(self, folder: Path, name: str) -> None:
        """Put a checkpoint there, as Orbax would have saved it."""
        self._ask("upload", str(folder), name)

    def traffic(self) -> dict[str, int]:
        """What came since this was asked last: requests, and bytes of objects either way."""
        return self._ask("traffic")

    def files(self, name: str) -> int:
        """How many objects stand below a name."""
        return self._ask("files", name)["files"]

    def move(self, name: str, folder: Path) -> None:
        """Put what stands below a name into a folder of this disk, and delete it there."""
        self._ask("move", name, str(folder))

    def delete(self, name: str) -> None:
        self._ask("delete", name)

    def _ask(self, *words: str) -> dict:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the server of the bucket has ended")
        return json.loads(line)


def serve() -> None:
    sys.path.insert(0, str(HERE.parent))
    import google_crc32c

    from tests.buckets.google_server import GoogleServer, Stored

    # they cost as much as what is measured; the CRC32C is made for those clients that look at it
    Stored.md5 = Stored.crc = ""

    class Server(GoogleServer):
        async def answer(self, request):
            status, head, body = await super().answer(request)
            made = json.loads(body) if request.kind == "write" and status == 200 else {}
            if "name" in made and "gcsfs" in request.headers.get("user-agent", ""):
                crc = google_crc32c.value(self.buckets[BUCKET][made["name"]].data)
                made["crc32c"] = base64.b64encode(crc.to_bytes(4, "big")).decode()
                body = json.dumps(made).encode()
            request.received, request.body = len(request.body), b""  # what is stored is kept there
            return status, head, body

    def below(name: str) -> list[str]:
        return [key for key in server.buckets[BUCKET] if key.startswith(f"{name}/")]

    def upload(folder: str, name: str) -> dict:
        server.upload(Path(folder), f"gs://{BUCKET}/{name}")
        server.put(BUCKET, f"{name}/{MARK}", b"")
        return {}

    def traffic() -> dict:
        kinds = [(request.kind, request) for request in server.log]
        found = {
            "requests": len(kinds),
            "down_bytes": sum(r.sent for kind, r in kinds if kind == "read"),
            "up_bytes": sum(r.received for kind, r in kinds if kind == "write"),
        }
        server.log.clear()
        return found

    def files(name: str) -> dict:
        return {"files": len(below(name))}

    def move(name: str, folder: str) -> dict:
        for key in below(name):
            place = Path(folder, key.removeprefix(f"{name}/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(server.buckets[BUCKET][key].data)
        return delete(name)

    def delete(name: str) -> dict:
        for key in below(name):
            del server.buckets[BUCKET][key]
        return {}

    commands = {f.__name__: f for f in (upload, traffic, files, move, delete)}
    with Server() as server:
        server.buckets = {BUCKET: {}}
        server.faults.latency = LATENCY
        print(json.dumps(server.environment), flush=True)
        for line in sys.stdin:
            command, *words = json.loads(line)
            print(json.dumps(commands[command](*words)), flush=True)


if __name__ == "__main__":
    serve()
