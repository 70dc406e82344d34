"""Formats of other programs that a result can be written in."""
