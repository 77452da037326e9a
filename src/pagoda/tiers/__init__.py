"""Tiers and the wrappers around their one port; no tier knows another."""
