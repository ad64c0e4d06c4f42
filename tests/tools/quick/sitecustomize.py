"""Let the processes of tests collect garbage seldom, and not as they end: of importing torch that
is a third. Programs that import torch become forks of one that has.

Python runs this first where this folder is in PYTHONPATH.
"""

import atexit
import gc
import os

gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)  # what is frozen is not searched for garbage while modules are torn down
if "QUICK_FORKS" in os.environ:
    from forked import become_fork

    become_fork()
