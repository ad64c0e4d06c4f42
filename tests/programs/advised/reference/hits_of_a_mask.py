# advised first: shape_captured
import torch


@torch.compile
def gather(scores, features):
    index = torch.nonzero(scores > 0.5).squeeze(1)
    return features[index].sum(0) + features[index].shape[0]


features = torch.arange(12.0).view(4, 3)
result = [gather(torch.tensor([0.1, 0.9, 0.7, 0.8]), features), gather(torch.ones(4), features)]
