"""Facts of this host; no decisions."""
