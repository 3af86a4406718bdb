"""Tables and pages of `planner order` and `planner partition`."""
