"""An S3 on the loopback: moto's answers, behind a server that keeps a log, and can be slow or fail as services do."""

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pytest

from tests.buckets.server import Server

_OWN_HEADERS = ("connection", "transfer-encoding", "content-length", "keep-alive", "expect")

_SOMEBODY = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"

_CODES = {
    301: "PermanentRedirect",
    400: "ExpiredToken",
    401: "AccessDenied",
    403: "InvalidAccessKeyId",
    404: "NoSuchUpload",
    412: "PreconditionFailed",
    503: "SlowDown",
}


class S3Server(Server):
    """``with S3Server() as server``: it serves until the block ends, or the process does."""

    scheme = "s3"
    is_public = False
    """Whether who has no credentials may read."""
    region = ""
    """In which region the bucket is; '' for wherever it is looked for."""
    redirects = True
    """Whether what is signed for another region is sent on, as at an endpoint of one, or called malformed."""

    def __enter__(self):
        boto3 = pytest.importorskip("boto3", reason="installed by `make`, as all of `dev`")
        moto = pytest.importorskip("moto.server")
        self._moto = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self._host, self._moto_port = self._moto.get_host_and_port()
        self._threads = ThreadPoolExecutor(32)
        self._connections = threading.local()
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://{self._host}:{self._moto_port}",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket="bkt")
        return super().__enter__()

    def __exit__(self, *how):
        super().__exit__(*how)
        self._threads.shutdown()
        self._moto.stop()

    @property
    def environment(self):
        """What tells s3fs and us to come here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def reset(self):
        super().reset()
        self.is_public = False
        self.region = ""
        for name in self.names():
            self.remove(name)
        for one in self.uploads():
            self.client.abort_multipart_upload(
                Bucket="bkt", Key=one["Key"], UploadId=one["UploadId"]
            )

    def uploads(self):
        """Those that have begun: parts of objects that are not there yet."""
        return self.client.list_multipart_uploads(Bucket="bkt").get("Uploads", [])

    def put(self, bucket, name, data):
        self.client.put_object(Bucket=bucket, Key=name, Body=data)

    def names(self, begin=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bkt", Prefix=begin)
        return sorted(one["Key"] for page in pages for one in page.get("Contents", ()))

    def content(self, name):
        return self.client.get_object(Bucket="bkt", Key=name)["Body"].read()

    def version(self, name):
        found = self.client.head_object(Bucket="bkt", Key=name)
        return found["ETag"], found["LastModified"]

    def remove(self, name):
        self.client.delete_object(Bucket="bkt", Key=name)

    def kind_of(self, request):
        is_object = request.path.count("/") > 1 and not request.path.endswith("/bkt/")
        if "x-amz-copy-source" in request.headers:
            return "copy"
        if request.method == "GET" and not is_object:
            return "list"
        words = {"PUT": "write", "POST": "write", "HEAD": "look up", "GET": "read"}
        return words.get(request.method, "delete")

    async def answer(self, request):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._answered_by_moto, request)

    def _answered_by_moto(self, request):
        said = request.headers.get("authorization", "")
        if not said and not (self.is_public and request.method in ("GET", "HEAD")):
            return self._refused(403, "AccessDenied", "Access Denied")
        signed_for = said.split("/")[2] if said else self.region
        if self.region and signed_for != self.region:
            return self._elsewhere(signed_for)
        wanted = request.headers.get("x-amz-copy-source-if-match")
        if wanted is not None:  # which moto does not look at
            bucket, _, key = (
                unquote(request.headers["x-amz-copy-source"]).lstrip("/").partition("/")
            )
            if self.client.head_object(Bucket=bucket, Key=key)["ETag"] != wanted:
                return self.refusal(
                    412, "At least one of the pre-conditions you specified did not hold"
                )
            if self._stands_otherwise(request):
                return self.refusal(412, "At least one of the pre-conditions did not hold")
        return self._sent_on(request)

    def _stands_otherwise(self, request):
        """Whether what a copy would replace is not what it says, which moto does not look at, and S3 does.

        Source: "Conditional writes" of Amazon's S3 User Guide: `If-None-Match` and `If-Match` of CopyObject.
        """
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        try:
            stands = self.client.head_object(Bucket=bucket, Key=key)["ETag"]
        except self.client.exceptions.ClientError:
            stands = None
        if "if-none-match" in request.headers:
            return stands is not None
        return request.headers.get("if-match", stands) != stands

    def _sent_on(self, request):
        connection = getattr(self._connections, "one", None)
        if connection is None:
            connection = http.client.HTTPConnection(self._host, self._moto_port)
            self._connections.one = connection
        headers = {k: v for k, v in request.headers.items() if k not in _OWN_HEADERS}
        headers.setdefault("authorization", _SOMEBODY)  # who may ask as anybody is decided here
        for is_last in (False, True):
            try:
                connection.request(request.method, request.target, request.body, headers)
                got = connection.getresponse()
                body = got.read()
                break
            except (http.client.HTTPException, OSError):  # it was closed meanwhile
                connection.close()
                if is_last:
                    raise
        kept = {k: v for k, v in got.getheaders() if k.lower() not in _OWN_HEADERS}
        if request.method == "HEAD":
            kept["Content-Length"] = got.getheader("Content-Length", "0")
        return got.status, kept, body

    def _elsewhere(self, signed_for):
        """Source: S3's own answers, "Making requests over dual-stack and redirects", "Error responses"."""
        if self.redirects:
            said = (
                "The bucket you are attempting to access must be addressed using the specified"
                " endpoint. Please send all future requests to this endpoint."
            )
            more = f"<Endpoint>bkt.s3.{self.region}.amazonaws.com</Endpoint><Bucket>bkt</Bucket>"
            answer = self._refused(301, "PermanentRedirect", said, more)
        else:
            said = (
                f"The authorization header is malformed; the region '{signed_for}' is wrong;"
                f" expecting '{self.region}'"
            )
            more = f"<Region>{self.region}</Region>"
            answer = self._refused(400, "AuthorizationHeaderMalformed", said, more)
        answer[1]["x-amz-bucket-region"] = self.region
        return answer

    def refusal(self, status, said):
        return self._refused(status, _CODES[status], said)

    @staticmethod
    def _refused(status, code, said, more=""):
        error = f"<Error><Code>{code}</Code><Message>{said}</Message>{more}</Error>"
        head = {"Content-Type": "application/xml"}
        return status, head, f"<?xml version='1.0'?>{error}".encode()
