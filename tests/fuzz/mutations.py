"""What is done to a real file so that nobody would have written it: to its bytes, its numbers, its JSON, its words."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random

EDGES = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
"""Numbers beside which programs are wrong."""

WORDS = (
    *(
        "*",
        "**",
        "**/",
        "/",
        "//",
        "?",
        "[",
        "]",
        "[*]",
        "[!",
        "{",
        "}",
        "{a,b}",
        "{0..11}",
        "{0..}",
        "{9..0}",
        "{00..7..2}",
    ),
    *(
        "{0..99999999999}",
        "re:",
        "re:(",
        "(?P<a>",
        r"\1",
        r"\9",
        "%2F",
        "%25",
        "..",
        ".",
        "",
        " ",
        "\t",
        "\n",
        "\r",
        "\0",
        "\ufeff",
    ),
    *(
        "&a ",
        "*a",
        "<<: ",
        "!!python/object:os.system ",
        "!!binary ",
        "---\n",
        "...",
        "%YAML 1.1\n",
        "? ",
        ": ",
        "- ",
        "# ",
        "| ",
        "> ",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\ud800",
        "${a}",
        "${",
        "$${",
        "null",
        "~",
        ".nan",
        ".inf",
        "-.inf",
        "1e400",
        "1e-400",
        "0x",
        "0o9",
        "1_0",
    ),
    *(
        "1/0",
        "1/3",
        "0^-1",
        "9" * 5000,
        "true",
        "op",
        "edits",
        "expect: -1",
        "optional: true",
        "[[edits]]",
        "[a.b]",
        "a = 1",
    ),
    *("NaN", "Infinity", "{}", "[]", "é", "\u202e", "𝔘"),
)
"""What means something to one of the readers of text."""

VALUES = (
    *(
        None,
        True,
        False,
        "",
        "a",
        "0",
        "..",
        "/",
        "a" * 300,
        "\ud800",
        "float32",
        "<f4",
        "<f2",
        "bfloat16",
        "|b1",
        "jax.Array",
        "None",
    ),
    *(-1, 0.5, 1e308, -0.0, [], {}, [0], [1], [-1], [2**40], [None], [[]], {"a": 1}, *EDGES),
)
"""What is put where JSON has something else."""

Way = Callable[[bytes, Sequence[bytes], Random], bytes]


def mutated(content: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """The content after one to some changes; ``others`` are files of the same kind, from which parts may come."""
    document = _document(content)
    ways = BYTE_WAYS if document is None else (*JSON_WAYS, *JSON_WAYS, *BYTE_WAYS)
    if document is None and _is_text(content):
        ways = (*TEXT_WAYS, *TEXT_WAYS, *BYTE_WAYS)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4, 8))):
        content = chance.choice(ways)(content, others, chance)
    return content


def _is_text(content):
    head = content[:400]
    return b"\0" not in head and sum(byte < 0x80 for byte in head) > 0.95 * len(head)


def _place(content, chance):
    return chance.randrange(len(content) + 1)


def _range(content, chance, most=64):
    start = _place(content, chance)
    return start, min(start + chance.randrange(1, most), len(content))


# Bytes.


def flip(content, others, chance):
    if not content:
        return content
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def edge_byte(content, others, chance):
    at = _place(content, chance)
    return (
        content[:at]
        + bytes([chance.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFE, 0xFF))])
        + content[at + 1 :]
    )


def cut(content, others, chance):
    return content[: _place(content, chance)]


def remove(content, others, chance):
    start, stop = _range(content, chance)
    return content[:start] + content[stop:]


def insert(content, others, chance):
    at = _place(content, chance)
    return content[:at] + chance.randbytes(chance.randrange(1, 9)) + content[at:]


def repeat(content, others, chance):
    start, stop = _range(content, chance)
    times = chance.choice((1, 1, 1, 2, 50, 400))
    return content[:stop] + content[start:stop] * times + content[stop:]


def exchange(content, others, chance):
    a, b = sorted((_range(content, chance), _range(content, chance)))
    if a[1] > b[0]:
        return content
    return (
        content[: a[0]]
        + content[b[0] : b[1]]
        + content[a[1] : b[0]]
        + content[a[0] : a[1]]
        + content[b[1] :]
    )


def edge_number(content, others, chance):
    width = chance.choice((1, 2, 4, 8))
    at = max(_place(content, chance) - width, 0)
    number = chance.choice(EDGES) % (1 << 8 * width)
    return (
        content[:at]
        + number.to_bytes(width, chance.choice(("big", "little")))
        + content[at + width :]
    )


def nearby_number(content, others, chance):
    """A number that is a little more or less than it was, or twice as much."""
    width, order = chance.choice((1, 2, 4, 8)), chance.choice(("big", "little"))
    at = max(_place(content, chance) - width, 0)
    number = int.from_bytes(content[at : at + width], order)
    number = chance.choice((number + 1, number - 1, number * 2, number // 2, -number)) % (
        1 << 8 * width
    )
    return content[:at] + number.to_bytes(width, order) + content[at + width :]


def splice(content, others, chance):
    other = chance.choice(others) if others else content
    start, stop = _range(other, chance, 256)
    at = _place(content, chance)
    return content[:at] + other[start:stop] + content[at + chance.choice((0, stop - start)) :]


def digits(content, others, chance):
    """A number that is written in digits becomes another one."""
    found = list(re.finditer(rb"-?\d+", content[: 1 << 20]))
    if not found:
        return flip(content, others, chance)
    one = chance.choice(found)
    number = chance.choice((*EDGES, -1, int(one[0][:18]) + 1, int(one[0][:18]) - 1))
    return content[: one.start()] + str(number).encode() + content[one.end() :]


BYTE_WAYS: tuple[Way, ...] = (
    *(flip, flip, edge_byte, cut, remove, insert, repeat, exchange, edge_number, edge_number),
    *(nearby_number, splice, digits),
)


# Text.


def word(content, others, chance):
    at = _place(content, chance)
    said = chance.choice(WORDS).encode("utf-8", "surrogatepass")
    return content[:at] + said + content[at + chance.choice((0, 0, len(said))) :]


def line(content, others, chance):
    lines = content.split(b"\n")
    at = chance.randrange(len(lines))
    others_ = (chance.choice(others) if others else content).split(b"\n")
    way = chance.randrange(4)
    if way == 0:
        lines.insert(at, chance.choice(others_))
    elif way == 1:
        del lines[at]
    elif way == 2:
        lines[at] = b" " * chance.randrange(5) + lines[at].lstrip()
    else:
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines)


def nest(content, others, chance):
    start, stop = _range(content, chance)
    times = chance.choice((2, 30, 200, 2000))
    before, after = chance.choice(
        (("[", "]"), ("{", "}"), ("{a,", "}"), ("(", ")"), ("{'a': ", "}"), ("- ", ""))
    )
    return (
        content[:start]
        + before.encode() * times
        + content[start:stop]
        + after.encode() * times
        + content[stop:]
    )


TEXT_WAYS: tuple[Way, ...] = (word, word, word, line, line, digits, nest)


# JSON.


def _document(content):
    if content[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _nodes(document):
    """Every container with every key in it."""
    found, waiting = [], [document]
    while waiting:
        node = waiting.pop()
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    return found


def _inside(change):
    def way(content, others, chance):
        document = _document(content)
        if document is None:
            return chance.choice(BYTE_WAYS)(content, others, chance)
        nodes = _nodes(document)
        if nodes:
            beside = [node for other in others[:2] if (node := _document(other)) is not None]
            change(*chance.choice(nodes), nodes, chance, [n for one in beside for n in _nodes(one)])
        return json.dumps(document).encode()

    return way


def _replace(node, key, nodes, chance, beside):
    node[key] = chance.choice(VALUES)


def _edge(node, key, nodes, chance, beside):
    numbers = [(n, k) for n, k in nodes if type(n[k]) in (int, float)]
    node, key = chance.choice(numbers or [(node, key)])
    node[key] = chance.choice((*EDGES, -1, -(2**63)))


def _delete(node, key, nodes, chance, beside):
    del node[key]


def _rename(node, key, nodes, chance, beside):
    if isinstance(node, dict):
        name = chance.choice(
            (key + "x", key[:-1], "", key.upper(), "a.b", "../x", key + "." + key, *map(str, node))
        )
        node[name] = node.pop(key)
    else:
        node.insert(key, node[key])


def _swap(node, key, nodes, chance, beside):
    other, at = chance.choice(nodes)
    node[key], other[at] = json.loads(json.dumps((other[at], node[key])))


def _borrow(node, key, nodes, chance, beside):
    """What stands under the same key in another file, or anything of it beside what is there."""
    alike = [(n, k) for n, k in beside if k == key] or beside
    if alike:
        other, at = chance.choice(alike)
        node[key] = json.loads(json.dumps(other[at]))
        if isinstance(node, dict) and isinstance(other, dict) and chance.random() < 0.3:
            more = chance.choice(list(other))
            node.setdefault(more, json.loads(json.dumps(other[more])))


def _wrap(node, key, nodes, chance, beside):
    for _ in range(chance.choice((1, 1, 5, 200))):
        node[key] = [node[key]] if chance.random() < 0.5 else {"a": node[key]}


def _text(node, key, nodes, chance, beside):
    texts = [(n, k) for n, k in nodes if isinstance(n[k], str)]
    node, key = chance.choice(texts or [(node, key)])
    if isinstance(node[key], str):
        changed = chance.choice((*BYTE_WAYS, *JSON_WAYS))(
            node[key].encode("utf-8", "replace"), (), chance
        )
        node[key] = changed.decode("utf-8", "replace")


JSON_WAYS: tuple[Way, ...] = tuple(
    map(
        _inside,
        (_replace, _replace, _edge, _edge, _delete, _rename, _swap, _borrow, _borrow, _wrap, _text),
    )
)
