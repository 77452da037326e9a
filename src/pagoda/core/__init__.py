"""Pure code: identity, residency state, decisions, policies, events, errors."""
