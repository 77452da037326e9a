"""`pagoda bench engine`: the engine's figures, each in a module, each beside its goal."""
