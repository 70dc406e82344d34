"""Google Cloud Storage (``gs://``), by gcsfs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import logging
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from surgery_cli.store.filesystem.object_service import (
    STREAMED_BYTES,
    Page,
    ServiceWords,
    StoredObject,
    asking,
)

_FIELDS: Final = "name,size,updated,generation"
_PER_PAGE: Final = 1000

_WORDS: Final = ServiceWords(
    scheme="gs",
    extra="gcs",
    name="Google Cloud Storage",
    credentials="give credentials: `gcloud auth application-default login`, or a key file in"
    " GOOGLE_APPLICATION_CREDENTIALS",
)


class GoogleStorage:
    """See ``ObjectService``. gcsfs finds credentials as Google's own tools do, and tries again with growing pauses."""

    scheme = "gs"
    needs_commit_mark = True

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {
            "prefix": prefix or None,
            "delimiter": delimiter or None,
            "pageToken": token,
            "maxResults": _PER_PAGE,
            "fields": f"items({_FIELDS}),prefixes,nextPageToken",
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        with asking(_WORDS, bucket):
            got = self._client.call("GET", "b/{}/o", bucket, json_out=True, **asked)
        objects = [_object(one) for one in got.get("items", ())]
        return Page(objects, got.get("prefixes", []), got.get("nextPageToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        with asking(_WORDS, bucket, key):
            got = self._client.call("GET", "b/{}/o/{}", bucket, key, json_out=True, fields=_FIELDS)
        return _object(got)

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        with asking(_WORDS, bucket, found.key):
            url = self._client.url(f"{bucket}/{found.key}", generation=found.version)
            asked = {"Range": f"bytes={start}-{stop - 1}"}
            content: bytes = self._client.call("GET", url, headers=asked)[1]
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> None:
        # gcsfs's own way wraps small objects in a message, in which a byte 0x0d at their end looks like a part of it
        asked = {"uploadType": "media", "name": key}
        if exclusively:
            asked["ifGenerationMatch"] = "0"
        kind = {"Content-Type": "application/octet-stream"}
        with asking(_WORDS, bucket, key):
            place = self._client.base.replace("/storage/", "/upload/storage/", 1)
            url = f"{place}b/{bucket}/o"
            self._client.call("POST", url, headers=kind, data=content, **asked)

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        with asking(_WORDS, bucket, key):
            return self._client.open(
                f"{bucket}/{key}", "xb" if exclusively else "wb", block_size=STREAMED_BYTES
            )

    def copy(self, bucket: str, key: str, to_bucket: str, to_key: str) -> None:
        with asking(_WORDS, bucket, key):
            self._client.cp_file(f"{bucket}/{key}", f"{to_bucket}/{to_key}")

    def delete(self, bucket: str, key: str) -> None:
        with asking(_WORDS, bucket, key):
            self._client.call("DELETE", "b/{}/o/{}", bucket, key)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        return {"driver": "gcs", "bucket": bucket, "path": folder}

    @cached_property
    def _client(self) -> Any:
        # what it would log, it also raises
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(skip_instance_cache=True)


def _object(found: dict[str, Any]) -> StoredObject:
    changed = datetime.fromisoformat(found["updated"])
    nanoseconds = int(changed.timestamp() * 1_000_000) * 1000
    return StoredObject(found["name"], int(found["size"]), nanoseconds, found["generation"])
