"""`pagoda lab incident`: the night that a cache took its service down, and how it would go here."""
