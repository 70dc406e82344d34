"""The long description of what is built: the README, of which an index shows one page alone.

All else stands in `pyproject.toml`, the repository's address too: `[project.urls]`, `Repository`.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
RELATIVE = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?![a-z][a-z0-9+.-]*:|#)([^)\s]+)\)")


def index_page(readme: str, repository: str) -> str:
    """The README whose links lead into the repository; without its address ('') only their text remains."""

    def absolute(link: re.Match[str]) -> str:
        mark, text, place = link.groups()
        if not repository:
            return text
        kind = "raw" if mark else "blob"
        return f"{mark}[{text}]({repository.rstrip('/')}/{kind}/HEAD/{place})"

    return RELATIVE.sub(absolute, readme)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=index_page(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            project.get("urls", {}).get("Repository", ""),
        ),
        long_description_content_type="text/markdown",
    )
