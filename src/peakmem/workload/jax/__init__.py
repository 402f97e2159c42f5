"""JAX: what XLA itself says a compiled function takes, for a GPU that need not be there."""
