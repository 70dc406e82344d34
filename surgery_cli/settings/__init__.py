"""What commands may be told, each declared once: options, keys of plans, the Python API and docs come from here."""
