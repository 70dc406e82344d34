"""A probe from its options to its document, and the gate before a commit."""
