"""Graphs with a backward each, compiled by inductor."""

import torch


def first(x):
    return torch.tanh(x).square().sum()


def second(x):
    return torch.sigmoid(x).square().sum()


def third(x):
    return (torch.sin(x) * x).sum()


for function in (first, second, third):
    torch.compile(function)(torch.ones(4, 3, requires_grad=True)).backward()
