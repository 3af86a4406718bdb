"""The space of plans, pruning, scoring and ranking."""
