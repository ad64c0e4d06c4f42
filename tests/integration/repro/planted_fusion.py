"""A post-grad pass that is wrong for atan times something, if nothing else takes the atan."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def install() -> None:
    """Plant the pass in this process."""
    torch._inductor.config.post_grad_custom_post_pass = scale_products


def try_few_settings() -> None:
    """Leave only a few settings for `bisect` to try."""
    from compileboard.collectors.repro.locate import bisect

    names = ("max_fusion_size", "post_grad_custom_pre_pass", "post_grad_custom_post_pass")
    bisect.SETTINGS = {name: bisect.SETTINGS[name] for name in names}
    bisect.NO_FUSION = {}


def scale_products(graph: Any) -> None:
    for node in list(graph.nodes):
        if (
            node.target is aten.mul.Tensor
            and getattr(node.args[0], "target", None) is aten.atan.default
        ):
            if len(node.args[0].users) > 1:
                continue
            with graph.inserting_after(node):
                scaled = graph.call_function(aten.mul.Tensor, (node, 1.02))
            node.replace_all_uses_with(
                scaled, delete_user_cb=lambda user, scaled=scaled: user is not scaled
            )


def program(x: Any) -> Any:
    h = (x.cos() + 0.5).atan() * 3.0
    return ((h - 1.0).exp().sum(-1),)
