"""Pagoda's own paged engine."""
