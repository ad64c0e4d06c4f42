"""One frozen dataclass a screen: pages, API, reports, commands and the static site render the same object."""
