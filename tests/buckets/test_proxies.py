"""Proxies between us and a service: which client goes through which, and one at which nobody is."""

import os
import socket

import pytest

from surgery_cli.store.filesystem import proxies
from surgery_cli.store.filesystem.endpoints import Endpoint
from surgery_cli.store.filesystem.proxies import check_way, proxy_of_curl, proxy_of_python
from surgery_cli.store.filesystem.wrong_settings import WrongSetting
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.loopback import answers, listening
from tests.buckets.test_endpoints import GOOGLE
from tests.buckets.test_wrong_settings import KEYS, commands, ran

BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NAMES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
P = "PROXY"
"""Stands for the address of the proxy."""


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(proxies, "_answering", set())


@pytest.fixture
def closed():
    """A port at which nobody listens, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def asked_by_botocore(url):
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.config import Config

    client = session.create_client(
        "s3", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b",
        region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    client.list_objects_v2(Bucket="bkt")


def asked_by_tensorstore(url):
    import tensorstore as ts

    context = ts.Context(
        {"s3_request_retries": {"max_retries": 1, "initial_delay": "1ms", "max_delay": "1ms"}}
    )
    spec = {"driver": "s3", "bucket": "bkt", "endpoint": url, "aws_region": "us-east-1"}
    spec["aws_credentials"] = {"type": "anonymous"}
    ts.KvStore.open(spec, context=context).result().read("a").result()


def asked_by_gcsfs(url):
    gcsfs = pytest.importorskip("gcsfs")
    client = gcsfs.GCSFileSystem(token="anon", endpoint_url=url, skip_instance_cache=True)
    from fsspec.asyn import sync

    async def ask():
        async with (await client._set_session()).get(url):  # its own way tries again for a minute
            pass

    sync(client.loop, ask)


CLIENTS = {
    "s3fs": (asked_by_botocore, proxy_of_python),
    "TensorStore": (asked_by_tensorstore, proxy_of_curl),
    "gcsfs": (asked_by_gcsfs, lambda _url: None),
}
IN_FORCE = {"http_proxy": P}
SET = [
    *(({name: P}, f"{scheme}://127.0.0.1") for name in NAMES for scheme in ("http", "https")),
    ({"http_proxy": "", "HTTP_PROXY": P}, "http://127.0.0.1"),
    ({"http_proxy": "", "all_proxy": P}, "http://127.0.0.1"),
    ({"https_proxy": "", "HTTPS_PROXY": P}, "https://127.0.0.1"),
    *(
        (IN_FORCE | {"no_proxy": no_proxy}, f"http://{host}")
        for host, left_out in {
            "127.0.0.1": ["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0", "0.0.1", "a.b,*", "a, 127.0.0.1 b"],
            "localhost": ["localhost", "LOCALHOST", ".localhost", "localhost.", "host", "a localhost"],
            "[::1]": ["::1", "[::1]", "::/0", "0.0.0.0/0"],
        }.items()
        for no_proxy in [*left_out, "*", "PORT"]
    ),
    (IN_FORCE | {"NO_PROXY": "127.0.0.1"}, "http://127.0.0.1"),
    (IN_FORCE | {"no_proxy": "", "NO_PROXY": "127.0.0.1"}, "http://127.0.0.1"),
    (IN_FORCE | {"no_proxy": "elsewhere", "NO_PROXY": "127.0.0.1"}, "http://127.0.0.1"),
]  # fmt: skip
"""Variables, and an address without its port."""


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("given", "host"), SET, ids=str)
def test_each_client_s_own_proxy_is_known(monkeypatch, closed, given, host, client):
    """Judged by what comes at the proxy."""
    ask, proxy_of = CLIENTS[client]
    url = f"{host}:{closed}"
    with listening(answers(BAD_GATEWAY, b"\r\n\r\n")) as proxy:
        for name, value in given.items():
            at = f"http://127.0.0.1:{proxy.port}"
            value_there = value.replace("PORT", url.rpartition("/")[2]).replace(P, at)
            monkeypatch.setenv(name, value_there)
        with pytest.raises(Exception, match=r"(?s)."):
            ask(url)
        found = proxy_of(url)
        assert bool(proxy.came) == (found is not None)
        assert found is None or os.environ[found.variable] == found.url
        assert found is None or given[found.variable] == P


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize(
    ("service", "name", "client"),
    [
        ("gs", "http_proxy", "TensorStore"),
        ("gs", "ALL_PROXY", "TensorStore"),
        ("s3", "http_proxy", "s3fs"),
        ("s3", "HTTP_PROXY", "s3fs"),
        ("s3", "all_proxy", "TensorStore"),
    ],
)
def test_a_proxy_at_which_nobody_is_is_named(
    request, tmp_path, closed, service, name, client, kind
):
    """It took a minute, and no proxy was named."""
    server = request.getfixturevalue("bucket" if service == "gs" else "s3")
    uploaded(server, saved(tmp_path / "ck"), f"{server.root}/ck")
    server.log.clear()
    given = dict.fromkeys(GOOGLE, server.url) | {"AWS_ENDPOINT_URL": server.url, **KEYS}
    given[name] = f"http://user:secret-word@127.0.0.1:{closed}"
    code, told, _ = ran(given, tmp_path, *commands(f"{server.root}/ck")[kind])
    assert (code, server.log) == (3, [])
    _, why, fix = told.splitlines()
    through = f"the proxy through which {client} goes to {server.url}"
    nobody = "nothing answers there (Connection refused)"
    said = f"{name} is 'http://127.0.0.1:{closed}', {through}: {nobody}"
    assert why == f"  a setting is wrong: {said}"
    assert fix == f"  start that proxy, correct {name}, or add 127.0.0.1 to no_proxy"


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY"])
def test_a_proxy_at_which_nobody_is_is_named_on_the_way_to_amazon(tmp_path, closed, name):
    given = KEYS | {name: f"127.0.0.1:{closed}", "AWS_DEFAULT_REGION": "us-east-1"}
    given["NO_PROXY"] = "elsewhere"
    code, told, _ = ran(given, tmp_path, *commands("s3://bkt/ck")["read"])
    assert code == 3
    _, why, fix = told.splitlines()
    assert f"{name} is '127.0.0.1:{closed}', the proxy through which s3fs goes to" in why
    assert fix.endswith("amazonaws.com to NO_PROXY"), "the one in force"


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_at_which_nobody_is_is_named_on_the_way_to_google(monkeypatch, closed, name):
    from surgery_cli.store.filesystem.google_settings import service_of_tensorstore

    for one in GOOGLE:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, f"http://127.0.0.1:{closed}")
    monkeypatch.setattr("surgery_cli.store.filesystem.connections._PAUSES", ())
    with pytest.raises(WrongSetting) as refused:
        check_way("TensorStore", service_of_tensorstore(), proxy_of_curl, None)
    assert refused.value.why.startswith(f"{name} is 'http://127.0.0.1:{closed}', ")
    assert refused.value.fix.endswith("or add storage.googleapis.com to no_proxy")


def test_a_proxy_without_such_a_host_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://no.such.host.invalid:3128")
    monkeypatch.setattr("surgery_cli.store.filesystem.connections._PAUSES", ())
    with pytest.raises(WrongSetting) as refused:
        check_way("s3fs", "http://service:9000", proxy_of_python, None)
    assert refused.value.why.endswith(": there is no host of that name")


@pytest.mark.parametrize("url", ["http://[::1", "http://host:port", "http://host", "http://"])
def test_what_is_no_address_of_a_proxy_the_client_says(monkeypatch, url):
    monkeypatch.setenv("http_proxy", url)
    check_way("TensorStore", "http://service:9000", proxy_of_curl, None)


def test_where_a_proxy_answers_the_service_is_not_looked_for(monkeypatch, closed):
    """It may be seen from there alone."""
    url = f"http://127.0.0.1:{closed}"
    with listening(answers(BAD_GATEWAY)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        check_way("TensorStore", url, proxy_of_curl, Endpoint("NAME", url))


def test_a_proxy_that_is_there_is_asked_for_by_neither_client_twice(monkeypatch):
    with listening(answers(BAD_GATEWAY)) as proxy, listening(answers(BAD_GATEWAY)) as service:
        endpoint = Endpoint("NAME", f"http://127.0.0.1:{service.port}")
        made = []
        connected = proxies.connected
        monkeypatch.setattr(proxies, "connected", lambda *at: made.append(at) or connected(*at))
        monkeypatch.setattr(
            "surgery_cli.store.filesystem.endpoints.connected",
            lambda *at: made.append(at) or connected(*at),
        )
        for proxy_of in (proxy_of_python, proxy_of_curl):
            check_way("client", endpoint.url, proxy_of, endpoint)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        for proxy_of in (proxy_of_python, proxy_of_curl):
            check_way("client", endpoint.url, proxy_of, endpoint)
    assert made == [("127.0.0.1", service.port), ("127.0.0.1", proxy.port)]


def test_proxies_beside_no_proxy_leave_all_as_it_is(service, tmp_path, closed):
    uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.log.clear()
    given = dict.fromkeys(GOOGLE, service.url) | {"AWS_ENDPOINT_URL": service.url, **KEYS}
    given |= {"http_proxy": f"http://127.0.0.1:{closed}", "no_proxy": "127.0.0.1,169.254.169.254"}
    code, told, _ = ran(given, tmp_path, *commands(f"{service.root}/ck")["read"])
    assert code == 0, told


def test_where_gcsfs_has_a_session_of_the_user_s_nothing_is_said_of_its_way(monkeypatch, closed):
    """A setting of fsspec's may send it through a proxy, from which alone the emulator is seen."""
    from fsspec.config import conf

    from surgery_cli.store.filesystem.google_storage import GoogleStorage

    for name in (*GOOGLE, "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed}")
    monkeypatch.setattr("surgery_cli.store.filesystem.connections._PAUSES", ())
    monkeypatch.setitem(conf, "gcs", {"session_kwargs": {"trust_env": True}, "token": "anon"})
    with listening(answers(BAD_GATEWAY)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        GoogleStorage()._connected()
    monkeypatch.setitem(conf, "gcs", {"token": "anon"})
    with pytest.raises(WrongSetting, match="nothing answers there"):
        GoogleStorage()._connected()
