"""Kinds of state that are known on neither side: one note for all params, and its advice works as it is typed."""

import re
import shlex

import optax

from tests.cli.test_donor_slots import params, saved

TX = optax.chain(
    optax.clip(1.0), optax.adamw(1e-3)
)  # of what stands before Adam nothing is on disk


def test_one_note_says_of_both_sides_what_settles_them(surgery, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, donor = (
        saved(tmp_path / name, {"params": params(), "opt_state": TX.init(params())})
        for name in ("run", "donor")
    )
    seen = surgery("replace", run, "new", "params", "--with", donor, "--dry-run")
    (note,) = [line for line in seen.out.splitlines() if "are not taken from" in line]
    assert "4 slots are not taken" in note
    assert "here and there is not known" in note
    assert "--optimizer-kind NAME" in note.partition("of there")[0]

    (copied,) = re.findall(r"`surgery (rescale [^`]*)`, then take them from DST", note)
    words = copied.replace("DST", "said").replace("NAME", "adamw")
    assert surgery(*shlex.split(words)).code == 0
    done = surgery(
        "replace", run, "new", "params", "--with", "said", "--optimizer-kind", "adamw", "--dry-run"
    )
    assert "4 slots come from" in done.out
