"""KDD'15: epoch-time model, segment mapping and dynamic programming over workers, replicas and servers.

`search` is the door, `study` asks about single layers, `span` is what plans take of it. Imports nouns, the
catalog and costs; exchanges, search, answers and validation may import it.
"""
