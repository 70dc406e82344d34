"""The file system: listings, links, memory, and what failing writes mean."""
