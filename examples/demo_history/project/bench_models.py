"""The models to measure: `compileboard-collect bench --only path:$PWD/bench_models.py`."""

import compileboard


@compileboard.bench.model(batch_size=4)
def encoder(batch_size):
    """Embed queries of 24 words."""
    import torch
    from encoder import Encoder

    return Encoder().eval(), (torch.randn(batch_size, 24, 32),)


@compileboard.bench.model(batch_size=64)
def ranker(batch_size):
    """Score a query's candidates."""
    import torch
    from ranker import Ranker

    return Ranker().eval(), (torch.rand(batch_size, 12), torch.randn(batch_size, 32))
