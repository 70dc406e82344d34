"""What will be: the recipe of every output leaf, and what each edit does."""
