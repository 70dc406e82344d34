"""The kernels that edits of leaves and of slots have in common, and what they refuse."""
