"""Whether advice helps, counted by following it."""
