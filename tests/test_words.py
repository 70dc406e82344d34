"""Several things in one sentence are put together in one place."""

import ast
import re
from pathlib import Path

import pytest

from surgery_cli.words.lists import listed, quoted

SOURCES = sorted(Path(__file__).resolve().parent.parent.glob("surgery_cli/**/*.py"))


@pytest.mark.parametrize(
    ("names", "most", "said"),
    [
        ([], 3, ""),
        (["a"], 3, "a"),
        (["a", "b", "c"], 3, "a, b, c"),
        (["a", "b", "c", "d"], 3, "a, b, c and 1 more"),
        (map(str, range(1500)), 1, "0 and 1,499 more"),
    ],
)
def test_names_are_cut_where_they_are_too_many(names, most, said):
    assert listed(names, most) == said


def test_a_word_joins_the_last_of_few():
    assert listed("ab", word="or") == "a or b"
    assert quoted("abc", 3, word="and") == "'a', 'b' and 'c'"
    assert quoted("abcd", 3, word="and") == "'a', 'b', 'c' and 1 more"


def test_no_other_module_counts_the_rest():
    """A cut list that says how many more there are is `listed` or a page's `rest`."""
    own = {"words/lists.py", "console/page.py", "errors.py"}
    counting = re.compile(r"\band \{\} more\b(?! \w)")
    found = {}
    for file in SOURCES:
        name = str(file).partition("surgery_cli/")[2]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr) and name not in own:
                parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
                if counting.search("".join(map(str, parts))):
                    found.setdefault(name, []).append(node.lineno)
    # these count what they never held: steps of a huge range, lines of a page; or speak to other programs
    never_held = {"operations/step_ranges.py", "console/problems.py"}
    elsewhere = {
        "console/formats/github.py",
        "console/formats/markdown.py",
        "words/html.py",
        "console/html_page.py",
    }
    assert set(found) <= never_held | elsewhere, found
