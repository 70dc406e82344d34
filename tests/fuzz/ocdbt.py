"""OCDBT's files byte by byte: nodes that no database writes, and checksums made good again.

Source: TensorStore's description of the format of its `ocdbt` driver.
"""

import google_crc32c

MANIFEST, NODE, VERSIONS = (bytes.fromhex(mark) for mark in ("0cdb3a2a", "0cdb20de", "0cdb1234"))
_LENGTH = 8
_SUM = 4


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes([*found, number])


def envelope(mark, body):
    """What stands around every node and manifest: its mark, its length, version 0, no compression, a checksum."""
    inside = b"\x00\x00" + body
    length = len(mark) + _LENGTH + len(inside) + _SUM
    return summed(mark + length.to_bytes(_LENGTH, "little") + inside + bytes(_SUM))


def summed(whole):
    """The same bytes with a checksum that agrees with them."""
    front = whole[:-_SUM]
    return front + google_crc32c.value(front).to_bytes(_SUM, "little")


def inner_node(height, file, children, prefix=b""):
    """A node of ``children``, (offset, length) in one file; ``prefix`` is what the keys of each have in common."""
    name = file.encode()
    body = bytes([height]) + varint(1) + varint(len(name)) + varint(0) + name
    keys = [prefix + bytes([number]) for number in range(len(children))]
    body += varint(len(children)) + b"".join(varint(0) for _ in children[1:])
    body += b"".join(varint(len(key)) for key in keys)
    body += b"".join(varint(len(prefix)) for _ in keys) + b"".join(keys)
    columns = [[0] * len(children), *zip(*children, strict=True), *[[1] * len(children)] * 3]
    body += b"".join(varint(number) for column in columns for number in column)
    return envelope(NODE, body)


def reaching_itself(height, file, prefix=b"", times=1):
    """A node at the begin of a file whose children are all that very node."""
    length = 0
    while True:
        node = inner_node(height, file, [(0, length)] * times, prefix)
        if len(node) == length:
            return node
        length = len(node)


def repaired(content):
    """A file of manifests and nodes with the checksum of each made good again, wherever a mark and a length say so."""
    found = bytearray(content)
    for mark in (MANIFEST, NODE, VERSIONS):
        at = content.find(mark)
        while at >= 0:
            start = at + len(mark)
            length = int.from_bytes(content[start : start + _LENGTH], "little")
            if start + _LENGTH + _SUM < at + length <= len(content):
                found[at : at + length] = summed(bytes(found[at : at + length]))
            at = content.find(mark, at + 1)
    return bytes(found)
