"""Headers and digests over bytes; no I/O."""
