"""Benchmarks: `serve` loads any OpenAI server, `engine` and `tiers` measure Pagoda itself.

Rules that all of them keep: warm-ups are not counted, two sides of a ratio alternate in one
run, a median comes with its lowest and highest value, and a poor figure is printed as well.
"""
