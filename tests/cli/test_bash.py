"""What a real bash, with the breaks of words that it has by itself, makes of a line when Tab is pressed."""

import pytest

from tests.cli.shells import bash, beside_copies

# JAX warns of forks, and a terminal is one
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def completed(tmp_path_factory):
    with beside_copies(bash, tmp_path_factory.mktemp("bash"), "run") as ask:
        yield ask


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("insp", "inspect "),
        ("inspect run@", "inspect run@"),
        ("inspect run@2", "inspect run@250 "),
        ("inspect run@25", "inspect run@250 "),
        ("inspect run@l", "inspect run@latest "),
        ("inspect ./run@5", "inspect ./run@500 "),
        ("inspect run@250 params/Conv_0/k", "inspect run@250 params/Conv_0/kernel "),
        ("average run new params --with run@2", "average run new params --with run@250 "),
        ("average run new params --with=run@2", "average run new params --with=run@250 "),
        ("rescale run new params --link=re", "rescale run new params --link=reflink "),
        ("check run x --output json=ru", "check run x --output json=run/"),
        ("check run x --output=json=ru", "check run x --output=json=run/"),
        ("check run x --output=ju", "check run x --output=junit="),
    ],
)
def test_tab_completes_what_stands_behind_a_break(completed, typed, line):
    became, *_ = completed(f"surgery {typed}")
    assert became.removeprefix("surgery ").rstrip() == line.rstrip()
