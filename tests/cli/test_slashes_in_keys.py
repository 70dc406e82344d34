"""Keys that hold slashes, beside keys that print alike: no two leaves have one name, and pages have their own tree."""

import json
import re
from collections import Counter

import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest


def tree(value):
    return {"params": {"a/b": value, "a": {"b": value}, "x%2Fy": value, "c": jnp.ones(2)}}


NAMES = {"params/a%2Fb", "params/a/b"}


@pytest.fixture
def twins(tmp_path):
    """Two checkpoints whose values all differ, and one with other types."""
    values = {"one": jnp.ones(3), "two": jnp.zeros(3), "three": jnp.ones(4)}
    for name, value in values.items():
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, tree(value))
    return tmp_path


LOOKS = {
    "inspect": (["inspect", "one"], ["leaves"]),
    "stats": (["inspect", "one", "--stats"], ["leaves"]),
    "digests": (["inspect", "one", "--digests"], ["leaves"]),
    "diff": (["diff", "one", "two"], ["changed"]),
    "diff of types": (["diff", "one", "three"], ["changed"]),
    "diff of equals": (["diff", "one", "one"], ["agreeing"]),
    "verify": (["verify", "one"], ["not_checked"]),
    "verify like": (["verify", "one", "--like", "three"], ["findings"]),
    "verify like itself": (["verify", "one", "--like", "one"], ["agreeing"]),
    "edit": (["rescale", "one", "new", "params/*", "params/*/*", "--by", "2"], ["leaves"]),
    "delete": (["delete", "one", "new", "params/a", "params/a%2Fb", "params/x%252Fy"], ["removed"]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", LOOKS)
def test_every_document_and_page_tells_them_apart(surgery, twins, monkeypatch, what):
    monkeypatch.chdir(twins)
    words, keys = LOOKS[what]
    document = surgery(*words, "--json", "--html", "page.html").document
    found = [one if isinstance(one, str) else one["path"] for key in keys for one in document[key]]
    assert Counter(found).most_common(1)[0][1] == 1
    assert set(found) >= NAMES
    page = (twins / "page.html").read_text()
    data = json.loads(
        re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    )
    spelled = data.get("spellings") or {one["path"]: one.get("spelling") for one in data["leaves"]}
    assert spelled["params/a%2Fb"] == "params/a%2Fb"
    assert spelled["params/x%252Fy"] == "params/x%252Fy"
    assert not spelled.get("params/a/b")
