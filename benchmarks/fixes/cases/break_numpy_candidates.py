"""A constraint solver in numpy that narrows candidates until one is left.

Reported: pytorch/pytorch#119186
Right: Leave the loop out of the compiled function, or keep it eager: it depends on the data at each
turn.
Harm: A loop that ends one turn early or late.
"""

import numpy as np
import torch


def narrow(candidates, clue):
    distance = np.abs(candidates - clue)
    return distance <= np.median(distance)


@torch.compile(backend="eager")
def solve(candidates, clues):
    rounds = 0
    for clue in clues:
        keep = narrow(candidates, clue)
        if np.count_nonzero(keep) == 1:
            break
        candidates = np.where(keep, candidates, np.float64(1e6))
        rounds += 1
    return candidates, rounds


def main():
    rng = np.random.default_rng(0)
    solved = []
    for _ in range(3):
        candidates = rng.uniform(0, 100, size=16)
        clues = [50.0, 40.0, 45.0, 42.0]
        left, rounds = solve(candidates, clues)
        solved.append((torch.as_tensor(np.asarray(left)), rounds))
    return solved


result = main()
