"""Paged attention that is told the longest sequence of the batch as an int.

Reported: pytorch/pytorch#132849
Right: Let torch make the int dynamic (mark_unbacked or the default after the first change), or pass
a fixed upper bound with a mask; dynamic=False must go.
Harm: Tokens beyond a sequence's length that are attended to.
"""

import torch


def paged_attention(query, key_cache, value_cache, block_tables, seq_lens, max_seq_len):
    block_size = key_cache.shape[1]
    blocks = (max_seq_len + block_size - 1) // block_size
    tables = block_tables[:, :blocks]
    keys = key_cache[tables].flatten(1, 2)[:, :max_seq_len]
    values = value_cache[tables].flatten(1, 2)[:, :max_seq_len]
    scores = torch.einsum("bd,bld->bl", query, keys)
    mask = torch.arange(max_seq_len)[None, :] < seq_lens[:, None]
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("bl,bld->bd", weights, values)


class Worker:
    def __init__(self, num_blocks=8, block_size=4, size=6):
        generator = torch.Generator().manual_seed(0)
        self.keys = torch.randn(num_blocks, block_size, size, generator=generator)
        self.values = torch.randn(num_blocks, block_size, size, generator=generator)
        self.attend = torch.compile(paged_attention, backend="eager", dynamic=False)

    def decode(self, query, seq_lens):
        tables = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])
        max_seq_len = max(seq_lens)
        lens = torch.tensor(seq_lens)
        return self.attend(query, self.keys, self.values, tables, lens, max_seq_len)


worker = Worker()
lengths = [5, 3]
result = []
for step in range(7):
    query = torch.randn(2, 6, generator=torch.Generator().manual_seed(step))
    result.append(worker.decode(query, lengths))
    lengths = [length + 1 for length in lengths]
