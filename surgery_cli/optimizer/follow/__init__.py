"""What becomes of slots, clocks and copies when params are edited."""
