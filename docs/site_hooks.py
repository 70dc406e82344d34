"""What the site has beyond the pages of this folder: the README as its first page, and others of the repository."""

from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]

PLANS = """\
# Plans for known models

What stands in the folder `plans` of the repository: save one as a file, put the names of your model in, and apply it.
[Conversions](conversions.md) says how they are written; each is held against the logits of the original model by tests.
"""

MOVED = {
    "](docs/": "](",
    "](plans/)": "](plans.md)",
    "](../plans)": "](plans.md)",
    "](CHANGELOG.md)": "](changelog.md)",
    "](CONTRIBUTING.md)": "](contributing.md)",
    "](LICENSE)": "](license.md)",
}
"""Where links of the repository lead on the site."""


def beside_the_docs() -> dict[str, str]:
    """What else of the repository is a page of the site, as Markdown by its name there."""
    found = {
        "index.md": (REPOSITORY / "README.md").read_text(),
        "changelog.md": (REPOSITORY / "CHANGELOG.md").read_text(),
        "contributing.md": (REPOSITORY / "CONTRIBUTING.md").read_text(),
        "license.md": f"# License\n\n```text\n{(REPOSITORY / 'LICENSE').read_text()}```\n",
    }
    plans = [PLANS]
    for path in sorted((REPOSITORY / "plans").rglob("*.yaml")):
        name = path.relative_to(REPOSITORY)
        plans.append(f"## `{name}`\n\n```yaml\n{path.read_text()}```\n")
    return found | {"plans.md": "\n".join(plans)}


def on_files(files: Any, *, config: Any) -> Any:
    """Add these pages to those that were found."""
    from mkdocs.structure.files import File

    for name, text in beside_the_docs().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The same with its links as they are on the site."""
    for there, here in MOVED.items():
        markdown = markdown.replace(there, here)
    return markdown
