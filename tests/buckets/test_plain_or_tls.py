"""Endpoints at which https is asked of what speaks plain HTTP, or the other way about: the setting is named."""

import pytest

from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.filesystem.endpoints import Endpoint, check_is_plain, check_is_there
from surgery_cli.store.filesystem.google_storage import GoogleStorage
from surgery_cli.store.filesystem.object_service import asking
from surgery_cli.store.filesystem.wrong_settings import WrongSetting
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.loopback import answers, listening, read_until, speaks_tls
from tests.buckets.test_endpoints import GOOGLE
from tests.buckets.test_wrong_settings import KEYS, commands, ran

REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PAGE = b"<!DOCTYPE HTML>\n<html>what is that"


def hangs_up_on_tls(connection, tell):
    """As some do that see at once that it is no request."""
    first = connection.recv(1)
    tell(first)
    if first != b"\x16":
        read_until(connection, b"\r\n\r\n")
        connection.sendall(REFUSED)


def has_no_status(connection, tell):
    """As Python's own server, which takes what has no version for HTTP 0.9."""
    got = read_until(connection, b"\n")
    tell(got[:1])
    connection.sendall(REFUSED if b" HTTP/1" in got else PAGE)


PLAIN = {
    "refuses at once": answers(REFUSED),
    "waits for a line's end": answers(REFUSED, b"\r\n"),
    "waits for an empty line": answers(REFUSED, b"\r\n\r\n"),
    "hangs up": hangs_up_on_tls,
    "has no status": has_no_status,
}


@pytest.mark.parametrize("server", PLAIN)
def test_plain_http_is_told_from_https(server):
    with listening(PLAIN[server]) as there, pytest.raises(WrongSetting) as refused:
        check_is_there(Endpoint("NAME", f"https://127.0.0.1:{there.port}/below"))
    url = f"127.0.0.1:{there.port}/below"
    assert refused.value.why == f"NAME is 'https://{url}': plain http answers there, not https"
    assert refused.value.fix == f"write NAME as http://{url}, or let https answer there"
    assert len(there.came) <= 2


def test_what_is_neither_is_no_plain_http():
    with listening(answers(b"SSH-2.0-x\r\n")) as there, pytest.raises(WrongSetting) as refused:
        check_is_there(Endpoint("NAME", f"https://127.0.0.1:{there.port}"))
    assert refused.value.why.endswith(": what answers there is no https")
    assert refused.value.fix == "start what should answer there, or correct NAME"


def test_who_speaks_tls_is_asked_no_more_whoever_the_certificate_names(tmp_path):
    with listening(speaks_tls(tmp_path)) as there:
        check_is_there(Endpoint("NAME", f"https://127.0.0.1:{there.port}"))
    assert there.came == [b"\x16"]


def test_plain_http_is_asked_nothing_where_it_was_meant(tmp_path):
    with listening(answers(REFUSED)) as there:
        check_is_there(Endpoint("NAME", f"http://127.0.0.1:{there.port}"))
    assert there.came in ([], [b""]), "a connection, and no byte"


def test_who_only_hangs_up_is_left_to_the_client():
    """That may be a service behind a balance that has nobody to pass it on to."""
    with listening(lambda connection, tell: tell(connection.recv(1))) as there:
        check_is_there(Endpoint("NAME", f"https://127.0.0.1:{there.port}"))


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("service", ["gs", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile"])
def test_https_of_plain_http_is_refused_before_anything_is_asked(request, tmp_path, service, kind):
    """It took more than a minute, and "later" was the advice."""
    server = request.getfixturevalue("bucket" if service == "gs" else "s3")
    uploaded(server, saved(tmp_path / "ck"), f"{server.root}/ck")
    server.log.clear()
    url = server.url.replace("http", "https")
    given, place = KEYS | {service: url}, service
    if service == "gs":
        given, place = dict.fromkeys(GOOGLE, url), " and ".join(GOOGLE)
    elif service == "profile":
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {url}\n")
        given = KEYS | {"AWS_CONFIG_FILE": str(tmp_path / "config")}
        place = f"`endpoint_url` in '{tmp_path / 'config'}'"
    code, told, _ = ran(given, tmp_path, *commands(f"{server.root}/ck")[kind])
    _, why, fix = told.splitlines()
    assert (code, server.log) == (3, [])
    is_set = "are" if service == "gs" else "is"
    said = f"{place} {is_set} '{url}': plain http answers there, not https"
    assert why == f"  a setting is wrong: {said}"
    assert fix == f"  write {place} as {server.url}, or let https answer there"


WORDS = {"gs": GoogleStorage.words, "s3": AmazonS3.words}


class Answered(OSError):
    code = 503


@pytest.mark.parametrize("scheme", WORDS)
def test_plain_http_of_tls_is_said_once_the_client_has_failed(tmp_path, scheme):
    with listening(speaks_tls(tmp_path)) as there:
        endpoint = Endpoint("NAME", f"http://127.0.0.1:{there.port}")
        with (
            pytest.raises(ServiceRefusal) as refused,
            asking(WORDS[scheme], "bkt", endpoint=lambda: endpoint),
        ):
            raise ConnectionResetError(104, "Connection reset by peer")
    told = f"NAME is '{endpoint.url}': https answers there, not plain http"
    assert refused.value.strerror == f"a setting is wrong: {told}"
    fix = f"write NAME as https://127.0.0.1:{there.port}, or let plain http answer there"
    assert refused.value.fix == fix
    assert len(there.came) == 1


@pytest.mark.parametrize(
    ("error", "asked"), [(ConnectionResetError("gone"), 1), (Answered("busy"), 0)]
)
@pytest.mark.parametrize("scheme", WORDS)
def test_plain_http_that_fails_stays_an_outage(scheme, error, asked):
    with listening(answers(REFUSED)) as there:
        endpoint = Endpoint("NAME", f"http://127.0.0.1:{there.port}")
        with (
            pytest.raises(ServiceRefusal) as refused,
            asking(WORDS[scheme], "bkt", endpoint=lambda: endpoint),
        ):
            raise error
    assert "cannot be reached, or fails, after several tries" in refused.value.strerror
    assert "or correct NAME" in refused.value.fix
    assert len(there.came) == asked


def test_https_is_not_asked_whether_it_is_plain(tmp_path):
    with listening(speaks_tls(tmp_path)) as there:
        check_is_plain(Endpoint("NAME", f"https://127.0.0.1:{there.port}"))
    assert there.came == []
