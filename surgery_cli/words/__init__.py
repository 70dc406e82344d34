"""Quantities and series as people read them, and the kinds of notes."""
