"""What speaks Amazon's S3 (``s3://``), by s3fs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Final

from surgery_cli.store.filesystem.fsspec_service import FsspecService, md5_of
from surgery_cli.store.filesystem.object_service import Page, ServiceWords, StoredObject

_PER_PAGE: Final = 1000
_TRIES: Final = 5
_CONDITION_FAILED: Final = ("412", "PreconditionFailed")


class AmazonS3(FsspecService):
    """See ``ObjectService``; by s3fs.

    Orbax neither saves nor restores there, so that nothing but a save's name says whether it is finished.
    """

    words = ServiceWords(
        scheme="s3",
        extra="s3",
        name="S3",
        credentials="give credentials: `aws configure`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )
    needs_commit_mark = False

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {"Prefix": prefix, "Delimiter": delimiter, "ContinuationToken": token}
        asked = {name: value for name, value in asked.items() if value}
        with self._asking(bucket):
            got = self._call("list_objects_v2", Bucket=bucket, MaxKeys=_PER_PAGE, **asked)
        objects = [_object(one["Key"], one["Size"], one) for one in got.get("Contents", ())]
        prefixes = [one["Prefix"] for one in got.get("CommonPrefixes", ())]
        return Page(objects, prefixes, got.get("NextContinuationToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        with self._asking(bucket, key):
            got = self._call("head_object", Bucket=bucket, Key=key)
        return _object(key, got["ContentLength"], got)

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        with self._asking(bucket, found.key, is_of_version=True):
            for number in range(_TRIES):
                content = self._range(bucket, found, start, stop)
                if len(content) == min(stop, found.size) - start:
                    return content
                time.sleep(0.1 * 2**number)
            raise OSError(errno.EIO, "its answers end before they are whole")

    def _range(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        """As much of a range as came before the answer was cut off."""
        from fsspec.asyn import sync
        from s3fs.core import S3_RETRYABLE_ERRORS

        asked = {"Range": f"bytes={start}-{stop - 1}", "IfMatch": found.version}
        got = self._call("get_object", Bucket=bucket, Key=found.key, **asked)
        try:
            content: bytes = sync(self._client.loop, got["Body"].read)
        except S3_RETRYABLE_ERRORS:
            return b""
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> str:
        asked = {"IfNoneMatch": "*"} if exclusively else {}
        asked["ContentMD5"] = md5_of(content)  # what differs from it, the service refuses
        with self._asking(bucket, key):
            got = self._call("put_object", Bucket=bucket, Key=key, Body=content, **asked)
        version: str = got["ETag"]
        return version

    def put_in_place(self, bucket: str, key: str, content: bytes, found: StoredObject) -> None:
        with self._asking(bucket, key, is_of_version=True):
            asked = {"Bucket": bucket, "Key": key, "Body": content}
            self._call("put_object", **asked, IfMatch=found.version)

    def copy(self, bucket: str, found: StoredObject, to_bucket: str, to_key: str) -> None:
        origin = {"Bucket": bucket, "Key": found.key}
        with self._asking(bucket, found.key, is_of_version=True):
            self._call(
                "copy_object",
                Bucket=to_bucket,
                Key=to_key,
                CopySource=origin,
                CopySourceIfMatch=found.version,
            )

    def delete(self, bucket: str, key: str, found: StoredObject | None = None) -> None:
        asked = {} if found is None else {"IfMatch": found.version}
        with self._asking(bucket, key, is_of_version=True):
            self._call("delete_object", Bucket=bucket, Key=key, **asked)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"driver": "s3", "bucket": bucket, "path": folder}
        region = _first_set("AWS_REGION", "AWS_DEFAULT_REGION")
        # TensorStore does not look for these itself, as Amazon's tools do
        if endpoint := _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            spec |= {"endpoint": endpoint, "aws_region": region or "us-east-1"}
        elif region:
            spec["aws_region"] = region
        return spec

    def _call(self, method: str, **asked: Any) -> dict[str, Any]:
        """A request; FileExistsError where its condition does not hold, whoever speaks S3 there."""
        try:
            got: dict[str, Any] = self._client.call_s3(method, **asked)
        except OSError as error:
            if _code(error) in _CONDITION_FAILED:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
            raise
        return got

    def _connected(self) -> Any:
        from s3fs import S3FileSystem

        return S3FileSystem(skip_instance_cache=True)


def _code(error: OSError) -> str:
    """What the service calls the error, if it comes from there."""
    said = getattr(error.__cause__, "response", None) or {}
    return str(said.get("Error", {}).get("Code", ""))


def _object(key: str, size: int, found: dict[str, Any]) -> StoredObject:
    nanoseconds = int(found["LastModified"].timestamp() * 1_000_000) * 1000
    return StoredObject(key, size, nanoseconds, found["ETag"])


def _first_set(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
