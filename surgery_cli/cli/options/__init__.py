"""Settings as what is typed: arguments, options, completion and help."""
