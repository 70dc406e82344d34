"""Each process says only what it knows of what is left: what one of them says, the folder bears out."""

import random
import signal
import time

import pytest

from surgery_cli import surgery
from tests.hosts.companies import saved, tree_to_cut
from tests.hosts.test_processes import cast, wait_for

NOTHING = "nothing was left behind"
FIRST_SAYS = "process 0 says whether anything is left at '{}'"
REMOVED = "what was built is removed; should process 1 still run"
MAY_STAND = "what it had built may stand beside '{}'"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("source") / "ck", tree_to_cut())


def struck(source, folder, delay, *signals):
    """Two processes, of which some get signals once something is built; what each says, and what is left."""
    processes = cast(source, 2, folder / "new")
    wait_for(lambda: any(folder.iterdir()))
    time.sleep(delay)
    for number, how, pause in signals:
        processes.end(number, how)
        time.sleep(pause)
    ended = processes.ended()
    left = {path.name for path in folder.iterdir()} - {"new"}
    return ended, left, (folder / "new").exists()


STRIKES = {
    "the first": [(0, signal.SIGTERM, 0)],
    "the first interrupted": [(0, signal.SIGINT, 0)],
    "the second": [(1, signal.SIGTERM, 0)],
    "both": [(0, signal.SIGTERM, 0), (1, signal.SIGTERM, 0)],
    "the second, the first killed at once": [(1, signal.SIGTERM, 0), (0, signal.SIGKILL, 0)],
    "the second, the first killed while it removes": [
        (1, signal.SIGTERM, 0.4),
        (0, signal.SIGKILL, 0),
    ],
    "the second sleeps": [(1, signal.SIGSTOP, 3), (1, signal.SIGCONT, 0)],
    "the first sleeps": [(0, signal.SIGSTOP, 3), (0, signal.SIGCONT, 0)],
}


OFTEN = ("the second", "the second, the first killed at once", "the second sleeps")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "turn"),
    [
        pytest.param(
            name, turn, marks=[] if (name in OFTEN and not turn) else pytest.mark.check_all
        )
        for name in STRIKES
        for turn in range(2)
    ],
)
def test_what_a_process_says_of_what_is_left_is_what_it_knows(source, tmp_path, name, turn):
    draw = random.Random(f"{name} {turn}")
    ended, left, is_whole = struck(source, tmp_path, draw.uniform(0, 0.6), *STRIKES[name])
    new = tmp_path / "new"
    said = [" ".join(each.err.split()) for each in ended]
    assert NOTHING not in said[1], said  # it is for process 0 to remove
    if is_whole:
        assert surgery.verify(str(new)).agrees
    else:
        is_known = [text in said[1] for text in (FIRST_SAYS.format(new), MAY_STAND.format(new))]
        assert any(is_known), said
        assert ended[1].code == 143, ended
        assert left or NOTHING in said[0] or REMOVED in said[0], said
    if NOTHING in said[0]:
        assert not left, said
    if left:  # by who was killed, or woke after all was removed
        assert ended[0].code == -signal.SIGKILL or REMOVED in said[0], said
        surgery.clean(str(new))
        assert {path.name for path in tmp_path.iterdir()} <= {"new"}
