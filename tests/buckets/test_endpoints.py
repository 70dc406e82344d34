"""Where services are, as the environment says it: addresses to which nothing can be added, and where nobody answers."""

import socket

import pytest

from surgery_cli.store.filesystem.amazon_settings import endpoint_at
from surgery_cli.store.filesystem.google_settings import check_settings
from surgery_cli.store.filesystem.wrong_settings import WrongSetting
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.test_wrong_settings import KEYS, commands, ran

GOOGLE = ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL")
FAULTS = {
    "slash": ("http://127.0.0.1:9/", "ends in a slash", "http://127.0.0.1:9"),
    "slashes": ("http://127.0.0.1:9//", "ends in a slash", "http://127.0.0.1:9"),
    "below": ("http://127.0.0.1:9/below/", "ends in a slash", "http://127.0.0.1:9/below"),
    "google's": ("https://storage.googleapis.com/", "ends in a slash", "https://storage.google"),
    "space behind": ("http://127.0.0.1:9 ", "has a space in it", "http://127.0.0.1:9"),
    "space before": (" http://127.0.0.1:9", "has a space in it", "http://127.0.0.1:9"),
    "a line": ("http://127.0.0.1:9\n", "has a space in it", "http://127.0.0.1:9"),
    "scheme": ("ftp://127.0.0.1:9", "does not begin with http:// or https://", None),
    "query": ("http://127.0.0.1:9?a=b", "has a ? or # in it", None),
    "part": ("http://127.0.0.1:9#a", "has a ? or # in it", None),
    "no host": ("http://", "has no host", None),
    "port": ("http://127.0.0.1:port", "a port that is no number", None),
}


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("name", GOOGLE)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_address_to_which_nothing_can_be_added_is_refused(monkeypatch, name, fault, both):
    """Behind a slash TensorStore asked for `//storage`, heard that nothing is there, and all was "damaged"."""
    url, said, meant = FAULTS[fault]
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    for one in GOOGLE:
        monkeypatch.setenv(one, url if both or one == name else "http://127.0.0.1:9")
    with pytest.raises(WrongSetting) as refused:
        check_settings()
    told = GOOGLE[0] if both else name
    assert refused.value.why.startswith(f"{told} is '{url}', which ")
    assert said in refused.value.why
    assert refused.value.fix.startswith(f"write {told}={meant}" if meant else f"let {told} be as")


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("name", GOOGLE)
def test_a_slash_is_no_damage(bucket, tmp_path, name, kind):
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    bucket.log.clear()
    hosts = dict.fromkeys(GOOGLE, bucket.url) | {name: f"{bucket.url}/"}
    code, said, took = ran(hosts, tmp_path, *commands("gs://bkt/ck")[kind])
    assert (code, bucket.log) == (3, [])
    _, why, fix = said.splitlines()
    assert why == f"  a setting is wrong: {name} is '{bucket.url}/', which ends in a slash"
    assert fix == f"  write {name}={bucket.url}"
    assert took < 20


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_slash_behind_an_endpoint_of_s3_is_none_too_many(s3, tmp_path, name):
    uploaded(s3, saved(tmp_path / "ck"), "s3://bkt/ck")
    code, said, _ = ran(
        {**s3.environment, **KEYS, name: f"{s3.url}/"}, tmp_path, *commands("s3://bkt/ck")["read"]
    )
    assert code == 0, said


OF_S3 = ("space behind", "query", "part")


@pytest.mark.parametrize("by", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile"])
@pytest.mark.parametrize("fault", OF_S3)
def test_an_endpoint_of_s3_to_which_nothing_can_be_added_is_refused(tmp_path, fault, by):
    url, said, meant = FAULTS[fault]
    given = KEYS | {by: url}
    if by == "profile":
        url = url.strip()  # files have no space behind
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {url}\n")
        given = KEYS | {"AWS_CONFIG_FILE": str(tmp_path / "config")}
        if fault == "space behind":
            return
    code, told, _ = ran(given, tmp_path, *commands("s3://bkt/ck")["read"])
    _, why, fix = told.splitlines()
    assert code == 3
    assert why == f"  a setting is wrong: the endpoint '{url}' {said}"
    assert fix.startswith("  write " + ("`endpoint_url` in '" if by == "profile" else f"{by} as "))
    assert meant is None or fix.endswith(meant)


@pytest.mark.parametrize("service", ["gs", "s3"])
@pytest.mark.parametrize("rest", ["127.0.0.1:1", "[::1"], ids=["nobody there", "no address"])
def test_no_password_is_shown(tmp_path, service, rest):
    """Of an endpoint that is set with one, whatever is wrong with it."""
    url = f"http://me:secret@{rest}"
    names = ["AWS_ENDPOINT_URL"] if service == "s3" else list(GOOGLE)
    code, told, _ = ran(
        {**KEYS, "GOOGLE_AUTH_TOKEN_FOR_TESTING": "t", **dict.fromkeys(names, url)},
        tmp_path,
        *commands(f"{service}://bkt/ck")["read"],
    )
    assert code == 3
    assert "a setting is wrong" in told
    assert f"http://{rest}" in told
    assert names[0] in told.splitlines()[-1]
    assert "secret" not in told


@pytest.mark.covers(1)
@pytest.mark.parametrize("service", ["gs", "s3"])
@pytest.mark.parametrize("odd", ["#", "/", "?", ":", "@", "%", "[", " ", "\\"])
@pytest.mark.parametrize("front", ["http://", "http:/", ""])
def test_no_password_with_odd_characters_is_shown(tmp_path, service, odd, front):
    """They end what is a user by the rules for addresses, and are what is wrong with the address."""
    url = f"{front}me:secret{odd}word@127.0.0.1:1"
    names = ["AWS_ENDPOINT_URL"] if service == "s3" else list(GOOGLE)
    given = {**KEYS, "GOOGLE_AUTH_TOKEN_FOR_TESTING": "t", **dict.fromkeys(names, url)}
    code, told, _ = ran(given, tmp_path, *commands(f"{service}://bkt/ck")["read"])
    assert code == 3
    assert "secret" not in told
    assert f"{odd}word" not in told
    assert "127.0.0.1" in told


def test_an_endpoint_that_is_ignored_is_not_blamed(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert endpoint_at("https://s3.amazonaws.com") is None
    assert endpoint_at("http://127.0.0.1:1") == ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


SWITCHES = {
    "AWS_USE_FIPS_ENDPOINT": "use_fips_endpoint",
    "AWS_USE_DUALSTACK_ENDPOINT": "use_dualstack_endpoint",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "ignore_configured_endpoint_urls",
}


@pytest.mark.parametrize("value", ["perhaps", "1", "yes"])
@pytest.mark.parametrize("is_in_file", [True, False])
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_that_is_neither_yes_nor_no_is_refused(
    tmp_path, monkeypatch, name, is_in_file, value
):
    """botocore takes whatever is not `true` for no."""
    from surgery_cli.store.filesystem.amazon_settings import check_switches

    for one, key in SWITCHES.items():
        monkeypatch.delenv(one, raising=False)
        check_switches({key: "True"})
        monkeypatch.setenv(one, "FALSE")
        check_switches({})
        monkeypatch.delenv(one)
    if not is_in_file:
        monkeypatch.setenv(name, value)
    with pytest.raises(WrongSetting) as refused:
        check_switches({SWITCHES[name]: value} if is_in_file else {})
    assert refused.value.why.startswith(f"'{value}' is neither 'true' nor 'false'")
    assert (f"`{SWITCHES[name]}` in " if is_in_file else name) in refused.value.fix


def test_a_switch_is_looked_at_before_anything_is_asked(s3, tmp_path):
    s3.log.clear()
    given = {"AWS_ENDPOINT_URL": s3.url, "AWS_USE_FIPS_ENDPOINT": "perhaps", **KEYS}
    code, told, _ = ran(given, tmp_path, *commands("s3://bkt/ck")["read"])
    assert (code, s3.log) == (3, [])
    assert told.splitlines()[2] == "  correct AWS_USE_FIPS_ENDPOINT"


@pytest.fixture
def closed():
    """A port at which nobody listens, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("service", ["gs", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile"])
def test_where_nobody_answers_the_setting_is_named_and_soon(tmp_path, closed, service, kind):
    """It took a minute, and "run the command again later" was the advice."""
    url, scheme = f"http://127.0.0.1:{closed}", "s3"
    given, place = KEYS | {service: url}, f"{service} is"
    if service == "gs":
        given, place, scheme = dict.fromkeys(GOOGLE, url), f"{' and '.join(GOOGLE)} are", "gs"
    elif service == "profile":
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {url}\n")
        given = KEYS | {"AWS_CONFIG_FILE": str(tmp_path / "config")}
        place = f"`endpoint_url` in '{tmp_path / 'config'}' is"
    code, told, took = ran(given, tmp_path, *commands(f"{scheme}://bkt/ck")[kind])
    _, why, fix = told.splitlines()
    assert code == 3
    assert (
        why == f"  a setting is wrong: {place} '{url}': nothing answers there (Connection refused)"
    )
    assert fix == f"  start what should answer there, or correct {place.rpartition(' ')[0]}"
    assert took < 15


@pytest.mark.parametrize("service", ["gs", "s3"])
def test_tensorstore_s_failures_name_the_setting(monkeypatch, service):
    from surgery_cli.inputs.buckets import path_at
    from surgery_cli.store.orbax.contexts import failure_of_service

    names = {"gs": GOOGLE, "s3": ["AWS_ENDPOINT_URL"]}[service]
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for name in names:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    said = "ABORTED: All 8 retry attempts failed: CURL error Could not connect to server"
    failure = failure_of_service(path_at(f"{service}://bkt/ck"), ValueError(said))
    told = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} 'http://127.0.0.1:9'"
    assert told in failure.problems[0].why
    assert failure.problems[0].fix.endswith(f"or correct {' and '.join(names)}")


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("name", [*GOOGLE, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile"])
def test_schemes_may_be_written_in_capitals(request, tmp_path, name, kind):
    server = request.getfixturevalue("bucket" if name in GOOGLE else "s3")
    url = server.url.replace("http", "HTTP")
    given = dict.fromkeys(GOOGLE, server.url) if name in GOOGLE else {**KEYS, name: url}
    given |= {"AWS_DEFAULT_REGION": "us-east-1", name: url}
    if name == "profile":
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {url}\n")
        given |= {"AWS_CONFIG_FILE": str(tmp_path / "config")}
    uploaded(server, saved(tmp_path / "ck"), f"{server.root}/ck")
    code, said, _ = ran(given, tmp_path, *commands(f"{server.root}/ck")[kind])
    assert code == 0, said
    assert bool(server.names("ck-new/")) == (kind == "write")
