"""Quantities and series as people read them."""
