"""Pure functions over query results: labels, shares, chains, differences, diagnosis."""
