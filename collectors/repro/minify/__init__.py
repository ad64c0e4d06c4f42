"""Make a failing graph as small as it gets: torch's minifier, each question asked once, in a process of its own."""
