"""Documents as text: what a person reads."""
