"""Rules: what must hold of leaves. One struct a rule, one table."""
