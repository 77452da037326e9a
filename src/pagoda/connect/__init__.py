"""Connectors: Pagoda's store inside other engines. Nothing else imports an engine's packages."""
