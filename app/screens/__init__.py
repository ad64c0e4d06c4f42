"""One frozen dataclass per screen, which pages, API, reports, commands and the static site
render.
"""
