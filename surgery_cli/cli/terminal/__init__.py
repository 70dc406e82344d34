"""Standard output and standard error: documents, problems, progress, signals."""
