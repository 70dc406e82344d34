"""What comes from outside: addresses, JSON, files; told apart before anything believes it."""
