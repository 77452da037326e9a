"""`pagoda preflight`: is this host, or a container file, ready for a tiered KV cache."""
