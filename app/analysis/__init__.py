"""Pure functions over what queries return: words, shares, chains, differences, diagnosis."""
