"""Fixes of graph breaks by subject: each a program that breaks the graph, and the same program without a break."""
