"""What speaks Amazon's S3 (``s3://``), by s3fs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, Final

from surgery_cli.store.filesystem.object_service import (
    STREAMED_BYTES,
    Page,
    ServiceWords,
    StoredObject,
    asking,
)

_WORDS: Final = ServiceWords(
    scheme="s3",
    extra="s3",
    name="S3",
    credentials="give credentials: `aws configure`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
)
_PER_PAGE: Final = 1000


class AmazonS3:
    """See ``ObjectService``. s3fs finds credentials as Amazon's own tools do, and tries again with growing pauses.

    Orbax neither saves nor restores there, so that nothing but a save's name says whether it is finished.
    """

    scheme = "s3"
    needs_commit_mark = False

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {"Prefix": prefix, "Delimiter": delimiter, "ContinuationToken": token}
        asked = {name: value for name, value in asked.items() if value}
        with asking(_WORDS, bucket):
            got = self._client.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=_PER_PAGE, **asked)
        objects = [_object(one["Key"], one["Size"], one) for one in got.get("Contents", ())]
        prefixes = [one["Prefix"] for one in got.get("CommonPrefixes", ())]
        return Page(objects, prefixes, got.get("NextContinuationToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        with asking(_WORDS, bucket, key):
            got = self._client.call_s3("head_object", Bucket=bucket, Key=key)
        return _object(key, got["ContentLength"], got)

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        with asking(_WORDS, bucket, found.key):
            content: bytes = self._client.cat_file(f"{bucket}/{found.key}", start=start, end=stop)
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> None:
        mode = "create" if exclusively else "overwrite"
        with asking(_WORDS, bucket, key):
            self._client.pipe_file(f"{bucket}/{key}", content, mode=mode)

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
            self._client.call_s3("delete_object", Bucket=bucket, Key=key)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"driver": "s3", "bucket": bucket, "path": folder}
        region = _first_set("AWS_REGION", "AWS_DEFAULT_REGION")
        # TensorStore does not look for these itself, as Amazon's tools do
        if endpoint := _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            spec |= {"endpoint": endpoint, "aws_region": region or "us-east-1"}
        elif region:
            spec["aws_region"] = region
        return spec

    @cached_property
    def _client(self) -> Any:
        from s3fs import S3FileSystem

        return S3FileSystem(skip_instance_cache=True)


def _object(key: str, size: int, found: dict[str, Any]) -> StoredObject:
    nanoseconds = int(found["LastModified"].timestamp() * 1_000_000) * 1000
    return StoredObject(key, size, nanoseconds, f"{found['ETag']} {nanoseconds}")


def _first_set(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
