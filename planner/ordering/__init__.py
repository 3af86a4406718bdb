"""Transfer ordering: one strategy a file behind one small interface, and the measures of an order."""
