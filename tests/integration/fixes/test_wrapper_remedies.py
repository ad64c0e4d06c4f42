"""The AOT page's remedies for AOTAutograd's wrappers do what they say, with this torch."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def compile_counted():
    """Compile with AOTAutograd alone; return the function and how many forwards and backwards were
    compiled.
    """
    import torch._dynamo
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    def compile_counted(function, **options):
        counts = {"forward": 0, "backward": 0}

        def compiler(phase):
            def take(gm, _inputs):
                counts[phase] += 1
                return make_boxed_func(gm.forward)

            return take

        backend = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            partition_fn=min_cut_rematerialization_partition,
        )
        return torch.compile(function, backend=backend, **options), counts

    torch._dynamo.reset()
    yield compile_counted
    torch._dynamo.reset()


def scale(x):
    return x.sin() * x.shape[0]


def test_no_grad_leaves_out_the_backward_that_is_compiled_at_once(compile_counted):
    x = torch.randn(6, 4, requires_grad=True)
    compiled, counts = compile_counted(scale, dynamic=True)
    compiled(x)
    assert counts == {"forward": 1, "backward": 1}  # a symbolic size is saved
    compiled, counts = compile_counted(scale, dynamic=True)
    with torch.no_grad():
        compiled(x)
    assert counts == {"forward": 1, "backward": 0}


def test_a_gradient_laid_out_as_its_output_is_not_copied(compile_counted, monkeypatch):
    from torch._functorch._aot_autograd import runtime_wrappers

    coerce, copied = runtime_wrappers.coerce_to_expected_memory_format, []

    def count(tensor, layout):
        coerced = coerce(tensor, layout)
        copied.append(coerced is not tensor)
        return coerced

    monkeypatch.setattr(runtime_wrappers, "coerce_to_expected_memory_format", count)
    compiled, _counts = compile_counted(torch.sin)
    x = torch.randn(6, 4, requires_grad=True)
    for gradient in (torch.randn(6, 4), torch.randn(4, 6).t(), torch.ones(1, 1).expand(6, 4)):
        compiled(x).backward(gradient)
    assert copied == [False, True, True]
    copied.clear()
    compiled(x).sum().backward()  # whose gradient is one number, expanded
    assert copied == [True]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_new_value_instead_of_a_write_to_one_of_several_views(compile_counted):
    def write(x):
        x.add_(1)
        return x * 2

    def compute(x):
        return (x + 1) * 2

    view = torch.randn(2, 4, requires_grad=True).clone().unbind()[0]
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        compile_counted(write)[0](view)
    assert torch.equal(compile_counted(compute)[0](view), (view + 1) * 2)


def test_no_donated_buffers_let_a_compiled_backward_keep_its_graph(compile_counted):
    import torch._functorch.config as functorch_config

    def run():
        compiled, _counts = compile_counted(lambda x: (x @ x).sin())
        x = torch.randn(8, 8, requires_grad=True)
        compiled(x).sum().backward()  # compiles the backward, with donated buffers
        compiled(x).sum().backward(retain_graph=True)

    with pytest.raises(RuntimeError, match="non-empty donated buffers"):
        run()
    with functorch_config.patch(donated_buffer=False):
        run()
