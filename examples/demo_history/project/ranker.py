"""Score candidates by their features and their text's vector."""

import torch
from torch import nn

FEATURES = (
    ("age", "log", 0.5),
    ("clicks", "log", 1.0),
    ("clicks_today", "log", 1.5),
    ("length", "sqrt", 0.2),
    ("price", "log", 0.8),
    ("rating", "square", 1.2),
    ("rating_count", "log", 0.4),
    ("returns", "sqrt", 0.9),
    ("stock", "sqrt", 0.1),
    ("views", "log", 0.7),
    ("views_today", "log", 0.6),
    ("weight", "sqrt", 0.3),
)
SCALES = {"log": torch.log1p, "sqrt": torch.sqrt, "square": torch.square}


class Scale(nn.Module):
    """Scale a feature."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, column):
        return SCALES[self.name](column)


class Weigh(nn.Module):
    """A learned weight for each feature."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, column):
        return column * self.weight


class Ranker(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.ModuleList(
            nn.Sequential(Scale(scale), Weigh(weight)) for _, scale, weight in FEATURES
        )
        self.text = nn.Linear(width, len(FEATURES))
        self.hidden = nn.Linear(2 * len(FEATURES), width)
        self.score = nn.Linear(width, 1)

    def forward(self, features, text):
        columns = [feature(column) for feature, column in zip(self.features, features.unbind(1))]
        known = torch.cat([torch.stack(columns, dim=1), self.text(text)], dim=1)
        return self.score(self.hidden(known).relu()).squeeze(-1)
