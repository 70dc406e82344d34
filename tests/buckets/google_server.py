"""A small Google Cloud Storage on the loopback, strict where it matters: preconditions, ranges, offsets of lists,
generations, copies by the service.
"""

import base64
import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import BytesParser
from functools import cached_property
from urllib.parse import unquote

import google_crc32c

from tests.buckets.server import Server

ROOTS = (
    "/resumable/upload/storage/v1",
    "/upload/storage/v1",
    "/download/storage/v1",
    "/storage/v1",
)
PAGE = 1000


@dataclass
class Stored:
    data: bytes
    generation: int
    kind: str = "application/octet-stream"
    changed: str = ""

    def described(self, bucket, name):
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "generation": str(self.generation),
            "metageneration": "1",
            "contentType": self.kind,
            "size": str(len(self.data)),
            "timeCreated": self.changed,
            "updated": self.changed,
            "etag": str(self.generation),
            "md5Hash": self.md5,
            "crc32c": self.crc,
        }

    @cached_property
    def md5(self):
        return base64.b64encode(hashlib.md5(self.data).digest()).decode()

    @cached_property
    def crc(self):
        return base64.b64encode(google_crc32c.Checksum(self.data).digest()).decode()


class Answer(Exception):
    """An answer that ends a request early."""

    def __init__(self, status, message=""):
        super().__init__(message)
        body = json.dumps({"error": {"code": status, "message": message or f"status {status}"}})
        self.answer = (status, {}, b"" if status == 304 else body.encode())


class GoogleServer(Server):
    """``with GoogleServer() as server``: it serves until the block ends, or the process does."""

    scheme = "gs"

    def __init__(self):
        super().__init__()
        self.buckets = {"bkt": {}}
        self._generations = itertools.count(1_700_000_000_000_000)
        self._uploads = {}

    def reset(self):
        super().reset()
        self.buckets = {"bkt": {}}

    @property
    def environment(self):
        """What tells gcsfs, TensorStore and Orbax to come here."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            "EPATH_USE_TF": "0",
        }

    def put(self, bucket, name, data, kind="application/octet-stream"):
        changed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.buckets[bucket][name] = Stored(data, next(self._generations), kind, changed)
        return self.buckets[bucket][name].described(bucket, name)

    def names(self, begin=""):
        return sorted(name for name in self.buckets["bkt"] if name.startswith(begin))

    def content(self, name):
        return self.buckets["bkt"][name].data

    def version(self, name):
        return self.buckets["bkt"][name].generation

    def remove(self, name):
        del self.buckets["bkt"][name]

    def kind_of(self, request):
        if "rewriteTo" in request.path:
            return "copy"
        if request.path.startswith(ROOTS[:2]):
            return "write"
        if request.method == "DELETE":
            return "delete"
        if request.path.endswith("/o"):
            return "list"
        return "read" if request.query.get("alt") == "media" else "look up"

    async def answer(self, request):
        try:
            return self._done(request)
        except Answer as early:
            return early.answer

    def refusal(self, status, said):
        return Answer(status, said).answer

    def _done(self, request):
        root = next(root for root in ROOTS if request.path.startswith(f"{root}/b"))
        parts = [unquote(part) for part in request.path[len(root) + 1 :].split("/")]
        if len(parts) == 1 or parts[1] not in self.buckets:
            raise Answer(404, "no such bucket")
        bucket = parts[1]
        if root in ROOTS[:2]:
            return self._upload(request, bucket)
        if len(parts) == 2:
            return _json({"kind": "storage#bucket", "name": bucket, "location": "US"})
        if len(parts) == 3:
            return _json(self._listed(request.query, self.buckets[bucket]))
        if len(parts) > 4:
            assert parts[4] == "rewriteTo", parts
            return self._copy(request, bucket, parts[3], parts[6], parts[8])
        return self._one(request, bucket, parts[3])

    def _check(self, bucket, name, query):
        found = self.buckets[bucket].get(name)
        generation = found.generation if found else 0
        if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != generation:
            raise Answer(412)
        if "ifGenerationNotMatch" in query and int(query["ifGenerationNotMatch"]) == generation:
            raise Answer(304 if found else 404)
        if "generation" in query and int(query["generation"]) != generation:
            raise Answer(404)

    def _upload(self, request, bucket):
        query, body, kind = request.query, request.body, "application/octet-stream"
        if "upload_id" in query:
            return self._upload_piece(request, bucket)
        if query.get("uploadType") == "resumable":
            name = query.get("name") or json.loads(body)["name"]
            self._check(bucket, name, query)
            number = str(next(self._generations))
            self._uploads[number] = (name, query, b"")
            place = f"{self.url}{request.path}?uploadType=resumable&upload_id={number}"
            return 200, {"Location": place}, b"{}"
        name = query.get("name")
        if query.get("uploadType") == "multipart":
            head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
            described, _ = BytesParser().parsebytes(head + body).get_payload()
            described = json.loads(described.get_payload(decode=True))
            name, kind = name or described["name"], described.get("contentType", kind)
            body = _second_part(body, request.headers["content-type"])
        self._check(bucket, name, query)
        return _json(self.put(bucket, name, body, kind))

    def _upload_piece(self, request, bucket):
        number = request.query["upload_id"]
        name, query, data = self._uploads[number]
        if request.method == "DELETE":
            del self._uploads[number]
            return 499, {}, b""
        place = request.headers.get("content-range", "")
        said = re.match(r"bytes (\d+)-(\d+)/(\d+|\*)", place)
        if said and int(said[1]) > len(data):
            raise Answer(400, "gap")
        if said or not place:  # else it says how long all is that was sent
            data = data[: int(said[1])] + request.body if said else request.body
        self._uploads[number] = (name, query, data)
        if said and said[3] == "*":
            return 308, {"Range": f"bytes=0-{len(data) - 1}"}, b""
        if said and len(data) < int(said[3]):
            return 308, {"Range": f"bytes=0-{len(data) - 1}"}, b""
        self._check(bucket, name, query)
        return _json(self.put(bucket, name, data))

    def _listed(self, query, standing):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        start, end = query.get("startOffset", ""), query.get("endOffset")
        items, prefixes, last = [], [], None
        most = min(int(query.get("maxResults", PAGE)), PAGE)
        listed = {"kind": "storage#objects"}
        for name in sorted(standing):
            if not name.startswith(prefix) or name < start or (end and name >= end):
                continue
            shown = name
            if delimiter and delimiter in name[len(prefix) :]:
                shown = name[: name.index(delimiter, len(prefix)) + len(delimiter)]
            if shown in prefixes or shown <= query.get("pageToken", ""):
                continue
            if len(items) + len(prefixes) >= most:
                listed["nextPageToken"] = last
                break
            if shown == name:
                items.append(standing[name].described("bkt", name))
            else:
                prefixes.append(shown)
            last = shown
        return listed | {k: v for k, v in (("items", items), ("prefixes", prefixes)) if v}

    def _copy(self, request, bucket, name, into, target):
        found = self.buckets[bucket].get(name)
        if found is None or into not in self.buckets:
            raise Answer(404)
        query = request.query
        if query.get("sourceGeneration", str(found.generation)) != str(found.generation):
            raise Answer(404)
        if query.get("ifSourceGenerationMatch", str(found.generation)) != str(found.generation):
            raise Answer(412)
        self._check(into, target, query)
        made = self.put(into, target, found.data, found.kind)
        return _json({"done": True, "objectSize": made["size"], "resource": made})

    def _one(self, request, bucket, name):
        found = self.buckets[bucket].get(name)
        self._check(bucket, name, request.query)
        if found is None:
            raise Answer(404, f"No such object: {bucket}/{name}")
        if request.method == "DELETE":
            del self.buckets[bucket][name]
            return 204, {}, b""
        if request.query.get("alt") != "media":
            return _json(found.described(bucket, name))
        head = {
            "Content-Type": found.kind,
            "X-Goog-Generation": found.generation,
            "X-Goog-Stored-Content-Length": len(found.data),
            "ETag": f'"{found.generation}"',
            "Last-Modified": "Sun, 22 Nov 2026 00:00:00 GMT",
        }
        size = len(found.data)
        said = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if said is None:
            return 200, {**head, "X-Goog-Hash": f"crc32c={found.crc}"}, found.data
        start = int(said[1]) if said[1] else max(0, size - int(said[2]))
        stop = min(int(said[2]) + 1, size) if said[1] and said[2] else size
        if start >= size:
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        head["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return 206, head, memoryview(found.data)[start:stop]


def _json(document):
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def _second_part(body, kind):
    """The bytes of the second part of a message, which a parser of mails would take for text."""
    boundary = b"--" + re.search(r"boundary=[\"']?([^\"';]+)", kind)[1].encode()
    line = b"\r\n" if body.startswith(boundary + b"\r\n") else b"\n"
    start = body.index(boundary, len(boundary))
    start = body.index(line + line, start) + 2 * len(line)
    return body[start : body.rindex(line + boundary)]
