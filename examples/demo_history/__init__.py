"""A small project whose versions `make demo` measures, to have trends to show."""
