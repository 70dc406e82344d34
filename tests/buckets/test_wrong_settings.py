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
"""
AMAZON = {
    "no such profile": ("AWS_PROFILE", "nowhere", "profile (nowhere)", "correct AWS_PROFILE"),
    "endpoint": ("AWS_ENDPOINT_URL", "127.0.0.1:9", "127.0.0.1:9", "give AWS_ENDPOINT_URL with"),
    "of s3": ("AWS_ENDPOINT_URL_S3", "host:9", "host:9", "give AWS_ENDPOINT_URL_S3 with http://"),
    "no http": ("AWS_ENDPOINT_URL", "ftp://a", "'ftp://a' is no", "give AWS_ENDPOINT_URL with"),
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
    "tries": ("AWS_MAX_ATTEMPTS", "many", "'many'", "AWS_MAX_ATTEMPTS"),
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
}


def settings_of(mistake, url, place):
    name, value, _, _ = AMAZON[mistake]
    found = {"AWS_ENDPOINT_URL": url, **({} if mistake in WITHOUT_KEYS else KEYS)}
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
