"""A folder for each leaf: more objects than a list tells of at once, in many folders."""

import numpy as np
import pytest

from tests.buckets import google_server
from tests.buckets.checkpoints import saved, uploaded

LEAVES = 100
COMMANDS = {
    "inspect": ("inspect", "SRC", "--digests"),
    "rescale": ("rescale", "SRC", "DST", "params/leaf_7", "--by", "2"),
    "resume": ("rescale", "SRC", "DST", "params/leaf_7", "--by", "2", "--resume"),
    "seal-result": ("rescale", "SRC", "DST", "params/leaf_7", "--by", "2", "--seal"),
    "force": ("rescale", "SRC", "OLD", "params/leaf_7", "--by", "2", "--force"),
    "seal": ("seal", "OLD"),
    "verify": ("verify", "OLD"),
    "diff": ("diff", "SRC", "OLD"),
    "rescue": ("rescue", "SRC", "DST"),
    "doctor": ("doctor", "SRC"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_stands_in_many_folders_is_listed_by_the_page(
    bucket, surgery, tmp_path, monkeypatch, command
):
    """Not folder by folder, nor object by object, where there are more objects than a page holds."""
    monkeypatch.setattr(google_server, "PAGE", 40)
    tree = {"params": {f"leaf_{n}": np.full(3, n, np.float32) for n in range(LEAVES)}}
    folder = saved(tmp_path / "ck", tree, use_ocdbt=False)
    places = {"SRC": uploaded(bucket, folder, "gs://bkt/ck"), "DST": "gs://bkt/new"}
    places["OLD"] = uploaded(bucket, folder, "gs://bkt/old")
    bucket.log.clear()
    ended = surgery(*(places.get(word, word) for word in COMMANDS[command]), "--quiet")
    assert ended.code == 0, ended.err
    asked = bucket.kinds()
    assert asked["list"] + asked["look up"] < 2 * LEAVES, asked
