"""Index of every figure and table of the papers that are reproduced."""
