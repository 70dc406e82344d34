"""One module a command; ``edits`` has those of all operations. The first line of each is what `surgery --help` says."""
