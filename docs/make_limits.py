"""Write docs/limits.md from the table of limits: `python docs/make_limits.py`."""

from pathlib import Path

from surgery_cli.inputs.limits import LIMITS

PAGE = Path(__file__).with_name("limits.md")

ABOVE = """\
# Limits

A few bytes of a damaged or hostile file can declare terabytes. So what files declare is held against this table before
memory is asked for, whatever the format; what is more is refused with exit code 3 (2 in plans), the figure, and the
option that lets it through:

    surgery inspect runs/huge --limit leaves=2000000

Every command takes `--limit NAME=VALUE`, as often as needed; in Python, `with surgery.limits({"leaves": 2_000_000}):`
holds in the whole process. Made by `docs/make_limits.py` from `surgery_cli/inputs/limits.py`.

"""

BELOW = """
What has no figure of its own is held against something that is there:

- **Sizes of arrays** against the bytes of the file that they should stand in, to the byte (msgpack, safetensors, npy,
  npz, PyTorch); those of zarr, whose chunks may be compressed or absent, against the memory that this process can have,
  chunk by chunk, and `--memory` says how much of it is used.
- **Counts and lengths inside of a file** (msgpack, zip, safetensors, OCDBT) against the bytes that are left of it.
- **Compressed entries** of an npz against the most that deflate can make of their bytes: 1,032 to 1.
- **Axes of an array**: 32 in zarr, as TensorStore takes no more; 64 elsewhere, as NumPy and PyTorch.
- **The header of a safetensors file**: 100,000,000 bytes, the format's own limit.
- **Numbers** in plans: 1,000 digits; in ranges of patterns, `{0..11}`: 18.

Globs are matched in linear time. A regular expression (`re:`) is matched as Python's `re` does, which may try twice as
many ways with each character more: it is ended after the time above, computing and not waiting. In the library that
holds in the main thread alone, as Python lets no other be interrupted.
"""


def page() -> str:
    """The table of all limits, as Markdown."""
    rows = [
        f"| `{limit.name}` | {limit.text(limit.default)} | {limit.of} | {limit.why} |"
        for limit in LIMITS.values()
    ]
    head = ["| limit | at most | of what | why so much |", "| --- | --- | --- | --- |"]
    return ABOVE + "\n".join([*head, *rows]) + "\n" + BELOW


if __name__ == "__main__":
    PAGE.write_text(page())
