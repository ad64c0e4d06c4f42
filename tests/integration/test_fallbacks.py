"""The lists that stand in for events an older torch does not emit, read from the torch at hand."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def emitted(monkeypatch):
    import torch._dynamo

    from compileboard.collectors.observe.fallbacks import ListReader

    torch._dynamo.reset()
    reader, events = ListReader((2, 4)), []
    yield lambda: (
        reader.read(lambda name, meta, payload, context: events.append((name, payload)), None),
        events,
    )[1]
    torch._dynamo.reset()


def test_breaks_are_read_from_torchs_list(emitted):
    torch.compile(lambda x: (x + 1, print("here"))[0], backend="eager")(torch.ones(2))
    ((name, text),) = emitted()
    assert name == "artifact:dynamo_graph_break_reason"
    assert (
        text.startswith("Graph break in user code at ")
        and "test_fallbacks.py" in text
        and "print" in text
    )


def test_reset_starts_the_lists_again(emitted):
    def explicit(x):
        torch._dynamo.graph_break()
        return x + 1

    for count in (1, 2):
        torch.compile(explicit, backend="eager")(torch.ones(2))
        assert len(emitted()) == count
        torch._dynamo.reset()
