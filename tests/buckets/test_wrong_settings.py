"""What is wrong with the settings by which services are found and asked: said as that, and nothing is asked of them."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest

from tests.buckets.checkpoints import SAMPLES, saved, uploaded

DISK = str(SAMPLES / "digits_standard")
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
SERVICES = ("AWS_", "STORAGE_", "TENSORSTORE_", "GOOGLE_")


def ran(environment, home, *words):
    """A command in a process of its own, with these settings and no others; and the seconds that it took."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(SERVICES)}
    known |= {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", **environment}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "surgery_cli", *words],
        env=known, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stderr, time.monotonic() - begun


def commands(address):
    """One that reads, and one that writes from a disk."""
    return {
        "read": ("verify", address),
        "write": ("rescale", DISK, f"{address}-new", "params/Dense_1", "--by", "2"),
    }


CREDENTIALS = "AWS_SHARED_CREDENTIALS_FILE"
HALF = b"[default]\naws_access_key_id = key\n"
CONFIG = b"""
[default]
region = eu-west-3
[profile far]
source_profile = nowhere
role_arn = arn:aws:iam::123456789012:role/x
[profile sso]
sso_session = nowhere
sso_account_id = 1
sso_role_name = reader
[profile program]
credential_process = /nowhere/program
[profile host]
endpoint_url = 127.0.0.1:9
[profile region]
region = eu west
[profile no-program]
credential_process = /etc/passwd
[profile token]
web_identity_token_file = /nowhere/token
role_arn = arn:aws:iam::123456789012:role/x
[profile code]
mfa_serial = arn:aws:iam::123456789012:mfa/me
role_arn = arn:aws:iam::123456789012:role/x
source_profile = keys
[profile beyond]
role_arn = arn:aws:iam::123456789012:role/y
source_profile = code
[profile keys]
aws_access_key_id = key
aws_secret_access_key = secret
"""
ROLE_TOKEN = "AWS_WEB_IDENTITY_TOKEN_FILE"
CONTAINER_TOKEN = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
CONTAINER = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"
REGIONAL = "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT"
AMAZON = {
    "no such profile": ("AWS_PROFILE", "nowhere", "profile (nowhere)", "correct AWS_PROFILE"),
    "endpoint": ("AWS_ENDPOINT_URL", "127.0.0.1:9", "127.0.0.1:9", "give AWS_ENDPOINT_URL with"),
    "of s3": ("AWS_ENDPOINT_URL_S3", "host:9", "host:9", "give AWS_ENDPOINT_URL_S3 with http://"),
    "no http": (
        "AWS_ENDPOINT_URL",
        "ftp://a",
        "'ftp://a' does not begin with",
        "write AWS_ENDPOINT_URL as",
    ),
    "endpoint in a file": (CONFIG, "host", "127.0.0.1:9", "give `endpoint_url` in '"),
    "region": ("AWS_DEFAULT_REGION", "eu west", "'eu west'", "correct AWS_DEFAULT_REGION"),
    "region in a file": (CONFIG, "region", "'eu west'", "correct `region` in '"),
    "config": ("AWS_CONFIG_FILE", b"[default", "Unable to parse", ", which AWS_CONFIG_FILE names"),
    "no text": ("AWS_CONFIG_FILE", b"\xff\xfe", "Unable to parse", ", which AWS_CONFIG_FILE names"),
    "credentials": (CREDENTIALS, b"[default", "Unable to parse", f", which {CREDENTIALS} names"),
    "half a pair": ("AWS_ACCESS_KEY_ID", "key", "in env, missing", "give `AWS_SECRET_ACCESS_KEY`"),
    "half in a file": (CREDENTIALS, HALF, "missing: aws_secret", "give `aws_secret_access_key` as"),
    "another profile": (CONFIG, "far", '"nowhere"', "mend that in '"),
    "single sign-on": (CONFIG, "sso", '"nowhere"', "mend that in '"),
    "program": (CONFIG, "program", "'/nowhere/program'", "correct `credential_process` in '"),
    "retries": ("AWS_RETRY_MODE", "often", '"often"', "correct AWS_RETRY_MODE"),
    "tries": ("AWS_MAX_ATTEMPTS", "many", "'many' is no number", "correct AWS_MAX_ATTEMPTS"),
    "a letter": ("AWS_MAX_ATTEMPTS", "x", "'x' is no number", "correct AWS_MAX_ATTEMPTS"),
    "no program": (CONFIG, "no-program", "'/etc/passwd'", "correct `credential_process` in '"),
    "role's token": (ROLE_TOKEN, "/nowhere/token", "'/nowhere/token'", f"correct {ROLE_TOKEN}"),
    "in a file": (CONFIG, "token", "'/nowhere/token'", "correct `web_identity_token_file` in '"),
    "container's token": (CONTAINER_TOKEN, "/nowhere/t", "'/nowhere/t'", CONTAINER_TOKEN),
    "container": (CONTAINER, "http://example.com/x", "'example.com'", f"correct {CONTAINER}"),
    "a code": (CONFIG, "code", "'code' has `mfa_serial`", "--profile code` prints"),
    "a code for another": (CONFIG, "beyond", "'code' has `mfa_serial`", "--profile code` prints"),
    "checksums": (CHECKSUMS, "maybe", "maybe", f"correct {CHECKSUMS}"),
    "mode": ("AWS_DEFAULTS_MODE", "odd", "odd", "correct AWS_DEFAULTS_MODE"),
    "regional": (REGIONAL, "odd", "odd", f"correct {REGIONAL}"),
    "certificates": ("AWS_CA_BUNDLE", "/nowhere/ca", "'/nowhere/ca'", "correct AWS_CA_BUNDLE"),
}
"""For each mistake a variable with its value (of bytes, what its file holds), or a profile of the file above; what the
error says is wrong; and where that is set."""
WITHOUT_KEYS = {
    "credentials",
    "half a pair",
    "half in a file",
    "another profile",
    "single sign-on",
    "program",
    "no program",
    "role's token",
    "in a file",
    "container's token",
    "container",
    "a code",
    "a code for another",
}
BESIDE = {
    "role's token": {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x"},
    "container's token": {CONTAINER: "http://127.0.0.1:9/x"},
    "regional": {"AWS_DEFAULT_REGION": "us-east-1"},
}


def settings_of(mistake, url, place):
    name, value, _, _ = AMAZON[mistake]
    found = {"AWS_ENDPOINT_URL": url, **({} if mistake in WITHOUT_KEYS else KEYS)}
    found |= BESIDE.get(mistake, {})
    if name == CONFIG:
        (place / "config").write_bytes(CONFIG)
        found |= {"AWS_CONFIG_FILE": str(place / "config"), "AWS_PROFILE": value}
        return found if value != "host" else {**found, "AWS_ENDPOINT_URL": ""}
    if isinstance(value, bytes):
        (place / "file").write_bytes(value)
        value = str(place / "file")
    return found | {name: value}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("mistake", AMAZON)
def test_a_wrong_setting_of_amazon_is_no_outage(s3, tmp_path, mistake, kind):
    _, _, why, fix = AMAZON[mistake]
    s3.log.clear()
    environment = settings_of(mistake, s3.url, tmp_path)
    code, said, took = ran(environment, tmp_path, *commands("s3://bkt/ck")[kind])
    _, second, third = said.splitlines()
    assert code == 3
    assert second.startswith("  a setting is wrong: ")
    assert why in second
    assert fix in third
    assert len(set(re.findall(r"AWS_\w+", third))) <= 1, "others are not wrong"
    assert "later" not in said
    assert s3.log == []
    assert took < 20


ONE_ALONE = {
    "STORAGE_EMULATOR_HOST": "TENSORSTORE_GCS_HTTP_URL",
    "TENSORSTORE_GCS_HTTP_URL": "STORAGE_EMULATOR_HOST",
}


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("given", ONE_ALONE)
def test_an_emulator_for_one_library_alone_is_refused_at_once(bucket, tmp_path, given, kind):
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    bucket.log.clear()
    code, said, took = ran({given: bucket.url}, tmp_path, *commands("gs://bkt/ck")[kind])
    assert code == 3
    _, why, fix = said.splitlines()
    assert why.startswith(f"  a setting is wrong: {given}={bucket.url} sends ")
    assert f"and {ONE_ALONE[given]} is not set" in why
    assert fix == f"  set {ONE_ALONE[given]} to the same address, or unset {given}"
    assert bucket.log == []
    assert took < 20


@pytest.mark.parametrize(
    ("host", "is_google"),
    [
        ("storage.googleapis.com", True),
        ("restricted.googleapis.com", True),
        ("private.googleapis.com", True),
        ("googleapis.com", True),
        ("storage-xyz.p.googleapis.com", True),
        ("storage.us-central1.rep.googleapis.com:443", True),
        ("storage.us-central1.rep.googleapis.com.example.org", False),
        ("googleapis.com.example.org", False),
        ("notgoogleapis.com", False),
    ],
)
@pytest.mark.parametrize("name", ONE_ALONE)
def test_google_s_own_addresses_are_no_emulator(monkeypatch, name, host, is_google):
    from surgery_cli.store.filesystem.google_settings import check_settings
    from surgery_cli.store.filesystem.wrong_settings import WrongSetting

    for one in (*ONE_ALONE, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(one, raising=False)
    check_settings()
    monkeypatch.setenv(name, f"https://{host}")
    with nullcontext() if is_google else pytest.raises(WrongSetting):
        check_settings()


TWO_ADDRESSES = {
    "another port": ("http://127.0.0.1:9", "http://127.0.0.1:10", "two addresses"),
    "another host": ("http://one:9", "http://two:9", "two addresses"),
    "another way": ("http://one:443", "https://one", "two addresses"),
    "one is Google's": ("http://one:9", "https://storage.googleapis.com", "is Google"),
    "the other is": ("https://x.p.googleapis.com", "http://one:9", "is Google"),
    "the same": ("http://one:9", "http://one:9", None),
    "without a scheme": ("one:9", "http://one:9", None),
    "this machine": ("http://localhost:9", "http://127.0.0.1:9", None),
    "the usual port": ("http://one", "http://one:80", None),
    "two ways to Google": ("https://storage.googleapis.com", "https://x.p.googleapis.com", None),
}


@pytest.mark.parametrize("which", TWO_ADDRESSES)
def test_both_libraries_go_to_one_service(monkeypatch, which):
    """One would read what the other has not written; both were set, so that nothing was said."""
    from surgery_cli.store.filesystem.google_settings import check_settings
    from surgery_cli.store.filesystem.wrong_settings import WrongSetting

    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    one, other, said = TWO_ADDRESSES[which]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", one)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", other)
    if said is None:
        check_settings()
        return
    with pytest.raises(WrongSetting) as refused:
        check_settings()
    assert said in refused.value.why
    for name, url in (("STORAGE_EMULATOR_HOST", one), ("TENSORSTORE_GCS_HTTP_URL", other)):
        assert f"{name}={url}" in refused.value.why


def test_a_second_address_is_refused_before_anything_is_asked(bucket, tmp_path):
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    bucket.log.clear()
    hosts = {"STORAGE_EMULATOR_HOST": bucket.url, "TENSORSTORE_GCS_HTTP_URL": "http://127.0.0.1:9"}
    code, said, took = ran(hosts, tmp_path, "verify", "gs://bkt/ck")
    assert (code, bucket.log) == (3, [])
    assert "are two addresses" in said.splitlines()[1]
    assert took < 20


def test_a_key_file_that_nobody_reads_is_not_looked_at(bucket, tmp_path):
    """An emulator that is asked with a token for testing needs none."""
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    hosts = {"STORAGE_EMULATOR_HOST": bucket.url, "TENSORSTORE_GCS_HTTP_URL": bucket.url}
    given = {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere", "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a"}
    for words in commands("gs://bkt/ck").values():
        code, said, _ = ran(hosts | given, tmp_path, *words)
        assert code == 0, said


def test_gcsfs_s_word_for_no_emulator_is_none(monkeypatch):
    from surgery_cli.store.filesystem.google_settings import check_settings

    for one in (*ONE_ALONE, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "default")
    check_settings()


def test_a_pipe_of_credentials_is_left_to_who_reads_it(monkeypatch, tmp_path):
    from surgery_cli.store.filesystem.google_settings import check_settings

    for name in ONE_ALONE:
        monkeypatch.delenv(name, raising=False)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "pipe"))
    check_settings()  # it would wait for somebody to write


SERVICE_ACCOUNT = {
    "type": "service_account",
    "private_key": "no key",
    "private_key_id": "1",
    "client_email": "a@b.iam.gserviceaccount.com",
    "client_id": "1",
    "token_uri": "https://oauth2.googleapis.com/token",
}
NO_FILE = "a setting is wrong: GOOGLE_APPLICATION_CREDENTIALS: '"
NO_KEY = "TensorStore, which reads arrays, takes no such credentials: "
WRITTEN = re.compile("JSON credentials file|private key")
KEY_FILES = {
    "not there": (None, NO_FILE),
    "a folder": ("folder", NO_FILE),
    "empty": ("", NO_FILE),
    "broken": ("{", NO_FILE),
    "a list": ("[]", NO_FILE),
    "of another kind": (json.dumps({"type": "other"}), NO_KEY),
    "without a key": (json.dumps({"type": "service_account"}), NO_KEY),
    "of no key": (json.dumps(SERVICE_ACCOUNT), NO_KEY),
    "of a workload identity": (json.dumps({"type": "external_account", "audience": "x"}), NO_KEY),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("file", KEY_FILES)
def test_a_key_file_that_is_none_is_no_damage(bucket, tmp_path, file, kind):
    content, said_first = KEY_FILES[file]
    key = tmp_path / "key.json"
    if content == "folder":
        key.mkdir()
    elif content is not None:
        key.write_text(content)
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    before = bucket.names()
    hosts = {"STORAGE_EMULATOR_HOST": bucket.url, "TENSORSTORE_GCS_HTTP_URL": bucket.url}
    environment = {**hosts, "GOOGLE_APPLICATION_CREDENTIALS": str(key)}
    code, said, _ = ran(environment, tmp_path, *commands("gs://bkt/ck")[kind])
    _, why, fix = said.splitlines()
    assert code == (3 if said_first == NO_FILE or kind == "read" else 4)
    assert said_first in why or (kind == "write" and WRITTEN.search(why))
    assert "GOOGLE_APPLICATION_CREDENTIALS" in fix
    assert "damaged" not in said
    assert "rescue" not in said
    assert bucket.names() == before
