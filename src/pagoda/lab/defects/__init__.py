"""Seeded defects: the simulation must find every one of them."""
