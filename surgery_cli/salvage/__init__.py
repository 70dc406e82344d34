"""What is left of a broken or unfinished checkpoint: every stored value that can be found, and what it proves."""
