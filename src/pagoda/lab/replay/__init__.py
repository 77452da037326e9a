"""Replay of traces through the residency state and the policies that the live store runs."""
