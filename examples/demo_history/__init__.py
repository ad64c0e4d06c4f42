"""A small project with a history, measured version by version: what `make demo` has trends of."""
