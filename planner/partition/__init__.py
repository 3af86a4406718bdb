"""KDD'15: epoch-time model, segment mapping and dynamic programming over workers, replicas and servers."""
