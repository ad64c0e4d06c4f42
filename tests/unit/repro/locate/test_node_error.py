"""The judge of one operation: right whatever the rounding, wrong by however little."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.repro import findings
from compileboard.collectors.repro.findings import JudgedNode

torch = pytest.importorskip("torch")
from compileboard.collectors.repro.locate.node_error import NodeOperation, is_random, judge_node  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten
ROW = JudgedNode("node", "operation")
UNARY = [
    aten.atan.default,
    aten.sin.default,
    aten.erf.default,
    aten.exp.default,
    aten.floor.default,
    aten.log.default,
]
BINARY = [
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.lt.Tensor,
    aten.fmod.Tensor,
    aten.maximum.default,
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def judge(target, args, compiled, key=None, **kwargs):
    return judge_node(
        ROW, NodeOperation(str(target), target, key, is_random(target)), args, kwargs, compiled
    )


def draw(seed, *shapes, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator) * scale).to(dtype) for shape in shapes]


@settings(max_examples=25)
@given(
    st.integers(0, 999),
    st.sampled_from(UNARY),
    st.sampled_from(DTYPES),
    st.sampled_from([1e-3, 1.0, 50.0]),
)
def test_eager_and_a_value_computed_wider_are_right(seed, target, dtype, scale):
    (x,) = draw(seed, (7, 33), dtype=dtype, scale=scale)
    for compiled in (target(x), target(x.double()).to(dtype)):
        assert judge(target, (x,), compiled).verdict == findings.RIGHT


@settings(max_examples=25)
@given(
    st.integers(0, 999), st.sampled_from(BINARY), st.sampled_from([torch.bfloat16, torch.float16])
)
def test_a_fused_kernel_may_have_used_inputs_before_they_were_rounded(seed, target, dtype):
    wide = draw(seed, (9, 40), (9, 40))
    wide[1] = wide[0] * 1.01 + wide[1] * 1e-2  # most of it cancels
    compiled = target(*wide)
    narrow = [value.to(dtype) for value in wide]
    compiled = compiled if compiled.dtype == torch.bool else compiled.to(dtype)
    assert judge(target, tuple(narrow), compiled).verdict == findings.RIGHT


@settings(max_examples=25)
@given(
    st.integers(0, 999), st.sampled_from([aten.atan.default, aten.erf.default, aten.exp.default])
)
def test_a_relative_error_of_a_ten_thousandth_is_wrong(seed, target):
    (x,) = draw(seed, (7, 33))
    judged = judge(target, (x,), target(x) * 1.0001)
    assert judged.verdict == findings.WRONG and judged.error == pytest.approx(1e-4, rel=1e-2)
    assert judged.error > judged.limit > judged.eager_error


@given(st.integers(1, 5_000))
def test_a_long_sum_in_another_order_is_right_and_a_lost_term_wrong(length):
    x = torch.linspace(-1, 3, length * 3).reshape(3, length)
    in_turn = torch.stack([row.cumsum(0)[-1] for row in x])
    assert judge(aten.sum.dim_IntList, (x, [1]), in_turn).verdict == findings.RIGHT
    assert (
        judge(aten.sum.dim_IntList, (x, [1]), in_turn - x.abs().amax(1)).verdict == findings.WRONG
    )


def test_nan_and_infinity_where_eager_has_none_are_counted():
    x = torch.tensor([1.0, 100.0, 200.0])
    judged = judge(aten.tanh.default, (x,), torch.tensor([math.tanh(1.0), math.nan, math.inf]))
    assert (judged.verdict, judged.not_finite_count) == (findings.NOT_FINITE, 2)
    zero = torch.zeros(2)
    assert judge(aten.log.default, (zero,), torch.full((2,), -100.0)).verdict == findings.NOT_FINITE
    assert judge(aten.log.default, (zero,), zero.log()).verdict == findings.RIGHT


def test_a_value_that_overflows_only_in_eager_is_right():
    x = torch.full((4,), 300.0, dtype=torch.float16)
    square = x * x  # infinite; a fused kernel has 90,000
    mean = torch.tensor(9e4).div(1e3).to(torch.float16)
    assert judge(aten.div.Scalar, (square, 1e3), mean.expand(4).clone()).verdict == findings.RIGHT


def test_booleans_and_integers_may_differ_only_where_a_rounding_decides():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    near = torch.tensor([1.0, 2.0078125, 9.0], dtype=torch.bfloat16)
    assert (
        judge(aten.lt.Tensor, (x, near), torch.tensor([True, False, True])).verdict
        == findings.RIGHT
    )
    assert (
        judge(aten.lt.Tensor, (x, near), torch.tensor([True, True, False])).verdict
        == findings.WRONG
    )
    assert (
        judge(aten.bitwise_and.Scalar, (torch.arange(3), 1), torch.tensor([0, 1, 1])).verdict
        == findings.WRONG
    )


def test_positions_of_equal_values_are_equally_right():
    x = torch.tensor([[1.0, 5.0, 5.0], [7.0, 7.0, 0.0]])
    for positions, verdict in (
        ([2, 0], findings.RIGHT),
        ([1, 1], findings.RIGHT),
        ([0, 1], findings.WRONG),
    ):
        assert judge(aten.argmax.default, (x, 1), torch.tensor(positions)).verdict == verdict
        assert judge(aten.max.dim, (x, 1), torch.tensor(positions), key=1).verdict == verdict


def test_complex_values_and_casts_are_judged():
    (real, imaginary) = draw(1, (5,), (5,))
    x = torch.complex(real, imaginary)
    assert judge(aten.exp.default, (x,), x.exp()).verdict == findings.RIGHT
    assert judge(aten.exp.default, (x,), x.exp().conj().resolve_conj()).verdict == findings.WRONG
    narrow = real.to(torch.bfloat16)
    assert (
        judge(torch.ops.prims.convert_element_type.default, (real, torch.bfloat16), narrow).verdict
        == findings.RIGHT
    )
    assert (
        judge(aten.view.dtype, (real, torch.int32), real.view(torch.int32)).verdict
        == findings.RIGHT
    )


def test_what_cannot_be_compared_is_not_judged():
    x = torch.zeros(3)
    assert judge(aten.rand_like.default, (x,), torch.rand(3)).verdict == findings.RANDOM
    assert judge(aten.empty_like.default, (x,), torch.ones(3)).verdict == findings.NOT_JUDGED
    refused = judge(aten.mm.default, (x, x), x)
    assert (refused.verdict, refused.reason) == (findings.NOT_JUDGED, "eager raised RuntimeError")
    assert (
        judge(aten.sin.default, (x,), torch.zeros(2)).reason == "float32[2] instead of float32[3]"
    )


def test_attention_without_dropout_is_judged_though_its_schema_says_random():
    q, k, v = draw(3, (1, 2, 8, 16), (1, 2, 8, 16), (1, 2, 8, 16))
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    compiled = target(q, k, v)[0]
    assert judge(target, (q, k, v), compiled, key=0).verdict == findings.RIGHT
    assert judge(target, (q, k, v), compiled * 1.01, key=0).verdict == findings.WRONG
