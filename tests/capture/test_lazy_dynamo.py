"""Torch's compiler waits until somebody uses it, and is then what an import makes it."""

import subprocess
import sys

AUDIT = """
import sys, torch
from torch import nn
from rooftile.capture.module import capture_module
from rooftile.capture.lazy_dynamo import is_loaded
graph = capture_module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.zeros(2, 4))
assert [op.name for op in graph.ops if op.name != "view"] == ["addmm", "relu"]
assert not is_loaded(), "a capture loaded the compiler"
assert "torch._dynamo.eval_frame" not in sys.modules
"""


def run(code):
    """A process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_capture_does_not_load_it_and_compiling_afterwards_works():
    """The package has its settings and nothing else; what was decorated meanwhile is marked, what
    was disabled stays uncompiled."""
    code = (
        AUDIT
        + """
@torch.compiler.disable
def apart(x):
    return x.cos()
@torch.compiler.allow_in_graph
def within(x):
    return x.sin()
seen = []
def backend(graph, inputs):
    seen.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward
out = torch.compile(lambda x: within(x) + apart(x) * 2, backend=backend)(torch.ones(3))
assert is_loaded()
assert torch.allclose(out, torch.ones(3).sin() + 2 * torch.ones(3).cos())
assert within in seen[0], seen
assert not any("cos" in str(target) for graph in seen for target in graph), seen
import torch._dynamo.config
assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
torch._dynamo.reset()
"""
    )
    run(code)


def test_it_is_loaded_as_it_was_before():
    """Where it is there already it stays itself."""
    run("import torch._dynamo as before\n" + AUDIT.split("assert not")[0]
        + "assert sys.modules['torch._dynamo'] is before and is_loaded()")  # fmt: skip


def test_a_model_that_compiles_in_its_forward():
    """torch.compile within a forward is what was written, and torch's own again afterwards."""
    run("""
import torch
from torch import nn
from rooftile.capture.module import capture_module
class Model(nn.Module):
    def forward(self, x):
        @torch.compile(mode="max-autotune")
        def inner(x):
            return x.exp()
        return torch.compile(torch.sin)(inner(x))
original = torch.compile
graph = capture_module(Model(), torch.zeros(2))
assert [op.name for op in graph.ops] == ["exp", "sin"]
assert torch.compile is original
""")
