"""What is known of optax's states and factories: tables of data, and what the user says of them."""
