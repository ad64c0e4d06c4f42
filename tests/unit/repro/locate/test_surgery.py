"""Graphs that are changed give the same values: exposed, cut short, with a node's value put in."""

import operator

import pytest

torch = pytest.importorskip("torch")
from compileboard.collectors.repro.graph_loading import list_calls  # noqa: E402
from compileboard.collectors.repro.locate.surgery import (  # noqa: E402
    copy_module,
    cut_after,
    expose,
    find_key,
    find_operation,
    replace_by_inputs,
    survey_graph,
)

pytestmark = pytest.mark.torch
aten = torch.ops.aten


def make_graph():
    """Make a graph with a view of an input that is written to later, and a part of a tuple."""
    graph = torch.fx.Graph()
    x, state = graph.placeholder("x"), graph.placeholder("state")
    view = graph.call_function(aten.view.default, (state, [-1]))
    sine = graph.call_function(aten.sin.default, (x,))
    pair = graph.call_function(aten.max.dim, (sine, 1))
    value = graph.call_function(operator.getitem, (pair, 0))
    graph.call_function(aten.copy_.default, (state, sine))
    after = graph.call_function(aten.add.Tensor, (view, 1.0))
    graph.output((value, after))
    return torch.fx.GraphModule({}, graph)


def make_inputs():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator), torch.zeros(3, 4)]


def test_a_survey_knows_what_is_a_tensor_and_what_is_written_to():
    survey = survey_graph(make_graph(), make_inputs(), ["sin_default"])
    tensors = [name for name, facts in survey.nodes.items() if facts.is_tensor]
    assert tensors == [
        "x",
        "state",
        "view_default",
        "sin_default",
        "getitem",
        "copy__default",
        "add_tensor",
    ]
    assert [name for name, facts in survey.nodes.items() if facts.writes] == ["copy__default"]
    assert survey.is_written_after("view_default") and not survey.is_written_after("copy__default")
    assert torch.equal(survey.values["sin_default"], make_inputs()[0].sin())


def test_an_exposed_graph_returns_each_value_as_it_was_at_its_time():
    module, inputs = make_graph(), make_inputs()
    survey = survey_graph(module, make_inputs())
    names = [node.name for node in list_calls(module)]
    exposed, keys = expose(module, names, survey)
    values = dict(zip(keys, exposed(*inputs)[2:]))
    assert torch.equal(values["view_default", None], torch.zeros(12))
    assert torch.equal(values["view_default", "add_tensor"], inputs[0].sin().reshape(-1))
    assert torch.equal(values["getitem", None], inputs[0].sin().amax(1))
    assert ("max_dim", None) not in values


def test_the_input_of_a_node_is_found_as_it_was_before_the_node():
    module = make_graph()
    survey = survey_graph(module, make_inputs())
    nodes = {node.name: node for node in module.graph.nodes}
    assert find_key(nodes["add_tensor"], nodes["view_default"], survey) == (
        "view_default",
        "add_tensor",
    )
    assert find_key(nodes["getitem"], nodes["sin_default"], survey) == ("sin_default", None)
    assert find_key(nodes["copy__default"], nodes["state"], survey) == ("state", None)


def test_a_graph_is_cut_short_and_returns_what_nothing_takes():
    module = make_graph()
    assert [len(list_calls(cut_after(module, count, make_inputs()))) for count in range(1, 7)] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    view, sine = cut_after(module, 2, make_inputs())(*make_inputs())
    assert view.shape == (12,) and torch.equal(sine, make_inputs()[0].sin())


@pytest.mark.parametrize("name", ["sin_default", "getitem", "view_default"])
def test_a_value_put_in_a_nodes_stead_gives_the_same(name):
    module = make_graph()
    value = survey_graph(module, make_inputs(), [name]).values[name]
    changed = replace_by_inputs(module, [name])
    outputs = changed(*make_inputs(), value)
    assert torch.equal(outputs[0], module(*make_inputs())[0])
    assert name not in [node.name for node in changed.graph.nodes]


def test_a_copy_of_a_graph_is_another_graph():
    module = make_graph()
    copied = copy_module(module)
    copied.graph.erase_node(
        next(node for node in reversed(copied.graph.nodes) if node.op == "output")
    )
    assert torch.equal(module(*make_inputs())[0], make_inputs()[0].sin().amax(1))


def test_operations_are_named_alike_at_each_level():
    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x):
            return torch.nn.functional.softplus(self.linear(x)).mean() + 1

    traced = torch.fx.symbolic_trace(Program())
    names = [find_operation(traced, node).name for node in list_calls(traced)]
    assert names == ["nn.Linear", "torch.softplus", "Tensor.mean", "operator.add"]
