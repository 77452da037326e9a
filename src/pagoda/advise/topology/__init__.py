"""`pagoda topology`: which GPUs of a host belong together, read from `nvidia-smi topo -m`."""
