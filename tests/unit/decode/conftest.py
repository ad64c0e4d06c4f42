"""Let generated examples take their time: the machine that runs them is shared."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
