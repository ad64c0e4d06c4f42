"""What a check tells GitHub."""
