"""Find the operation, pass or setting that makes a repro fail, by comparing nodes and by
bisection.
"""
