"""Programs with models of libraries, each with what is right to say first."""
