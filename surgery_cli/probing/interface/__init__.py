"""What is seen of the probe from outside: what it may be told, and the documents that it answers with."""
