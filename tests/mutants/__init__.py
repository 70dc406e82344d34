"""Mutation testing: the code is changed in one place, and a test must fail; what survives is a promise nobody tests."""
