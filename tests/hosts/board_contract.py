"""What a board promises, tried out on a real one; prints `kept`."""

import sys

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat, connect
from tests.hosts.companies import free_port


def check_keys(board):
    assert board.put("here", b"one")
    assert not board.put("here", b"two")
    assert board.wait("here") == b"one"
    assert board.put("here", b"three", anew=True)
    assert board.wait("here") == b"three"
    assert board.wait("nowhere") is None
    assert board.below("nowhere") == {}
    board.put("folder/a", b"\0\xff")
    board.put("folder/b", b"")
    assert board.below("folder") == {"a": b"\0\xff", "b": b""}


def check_pieces(member):
    large = bytes(range(256)) * (3 << 12)
    assert member.gather("large", large) == [large]
    assert member.gather("small", b"=5") == [b"=5"]


def main():
    seat = Seat(f"127.0.0.1:{free_port()}", 0, 1)
    board = connect(seat)
    check_keys(board)
    with pytest.raises(PlanError, match="cannot be reached"):
        connect(seat._replace(address=seat.address.replace("127.0.0.1", "localhost")))
    member = Membership(board, seat, lambda _: None)
    check_pieces(member)
    sys.stdout.write("kept\n")
    member.leave(0)


if __name__ == "__main__":
    main()
