"""Output formats: a document as another program reads it. One format a file, and one table."""
