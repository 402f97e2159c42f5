"""Which operators compute below `peakmem run --device cpu`: what decides on sizes is true, the rest is zero."""

from __future__ import annotations

import textwrap

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

STEP = """
def step():
    w = torch.nn.Parameter(torch.zeros(1000))
    torch.optim.SGD([w], 0.1).step()
"""

CHECKS = {
    "large floats are not computed, and are zero": """
        x = torch.full((512, 512), 3.0)
        assert (x @ x).sum().item() == 0
        assert torch.randn(300, 300).add(1).mean().item() == 0
        assert torch.empty(1000, 1000).normal_().max().item() == 0
    """,
    "small floats are computed": """
        x = torch.full((100, 100), 3.0)
        assert (x @ x)[0, 0].item() == 900
        assert torch.nn.functional.mse_loss(x, torch.zeros(100, 100)).item() == 9
    """,
    "integers and masks are computed, however large": """
        x = torch.arange(1_000_000)
        assert x.sum().item() == 499_999_500_000
        even = x % 2 == 0
        assert x[even].shape == (500_000,)
        assert even.nonzero().shape == (500_000, 1)
        assert torch.unique(x // 10).numel() == 100_000
        assert torch.bincount(x % 7).tolist()[:1] == [142_858]
        x.add_(1)
        assert x[-1] == 1_000_000
    """,
    "large floats are chosen by true masks": """
        x, mask = torch.randn(1000, 100), torch.arange(1000) < 10
        assert x[mask].shape == (10, 100)
        x[mask] = 1.0
        assert torch.where(mask)[0].numel() == 10
        assert torch.masked_select(x, mask[:, None]).numel() == 1000
    """,
    "indices from large floats are valid": """
        scores = torch.randn(64, 1000)
        best = scores.argmax(dim=1)
        values, chosen = scores.topk(5)
        table = torch.nn.Embedding(1000, 32)
        assert table(best).shape == (64, 32) and table(chosen).shape == (64, 5, 32)
        order = torch.randn(100_000).argsort()
        assert torch.arange(100_000)[order].numel() == 100_000
    """,
    "results are zeros where other numbers lay before": """
        for size in (10, 100, 1000):
            before = torch.full((size, 1000), -1)
            del before
            assert size < 1000 or torch.linalg.svdvals(torch.randn(size, 100)).max().item() == 0
            before = torch.full((size, 1000), -1)
            del before
            assert torch.randn(size, 1000).argsort().unique().tolist() in ([0], list(range(1000)))
    """,
    "a tensor of integers gets true numbers from floats": """
        x = torch.full((1000, 1000), 5)
        x[:100, :100] = torch.full((100, 100), 2.0)
        assert x.sum().item() == 5_000_000 - 3 * 10_000
        lengths = torch.full((64,), 7.0).long()
        assert lengths.sum().item() == 448
    """,
    "lists of tensors": """
        parts = [torch.arange(100_000) for _ in range(3)]
        assert torch.cat(parts).sum().item() == 3 * 4_999_950_000
        large = [torch.ones(200, 200) for _ in range(3)]
        assert torch.stack(large).shape == (3, 200, 200)
        torch._foreach_add_(large, 1.0)
        small = [torch.ones(10) for _ in range(3)]
        torch._foreach_add_(small, 1.0)
        assert small[2].sum().item() == 20
    """,
    "in other threads too": """
        import threading
        found = []
        def work():
            x = torch.full((512, 512), 3.0)
            found.append(((x @ x).sum().item(), torch.arange(1_000_000).sum().item()))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [(0.0, 499_999_500_000)]
    """,
    "forked processes compute": """
        import os
        pid = os.fork()
        if not pid:
            torch.set_num_threads(1)  # as workers of a DataLoader do: libgomp's threads are not there
            x = torch.full((300, 300), 2.0)
            os._exit(0 if (x @ x)[0, 0].item() == 1200 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "an operator that fails leaves the next ones as they were": """
        for _ in range(2000):
            try:
                torch.randn(200, 200) @ torch.zeros(3, 200)
            except RuntimeError:
                pass
        assert torch.arange(100).sum().item() == 4950
        assert (torch.full((512, 512), 3.0) @ torch.full((512, 512), 3.0)).sum().item() == 0
    """,
    "an operator written in Python runs as other Python does": """
        @torch.library.custom_op("others::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            assert torch.arange(100_000).sum().item() == 4_999_950_000
            return x * 2
        assert double(torch.zeros(512, 512)).shape == (512, 512)
    """,
    "functions of autograd with true integers": """
        class Chosen(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, ids):
                ctx.save_for_backward(ids)
                ctx.n = x.shape[0]
                return x[ids]
            @staticmethod
            def backward(ctx, grad):
                (ids,) = ctx.saved_tensors
                assert ids.sum().item() == 4950
                return grad.new_zeros(ctx.n, grad.shape[1]).index_add_(0, ids, grad), None
        w = torch.nn.Parameter(torch.randn(1000, 300))
        Chosen.apply(w, torch.arange(100)).sum().backward()
        assert w.grad.shape == (1000, 300)
    """,
    "an LSTM": """
        layer = torch.nn.LSTM(256, 256, 2, batch_first=True)
        out, (h, c) = layer(torch.randn(8, 64, 256))
        out.sum().backward()
        assert out.shape == (8, 64, 256) and layer.weight_hh_l0.grad is not None
    """,
    "nested, sparse, quantized and transformed tensors": """
        parts = [torch.randn(300, 64), torch.randn(200, 64)]
        nested = torch.nested.nested_tensor(parts)
        assert torch.nn.functional.linear(nested, torch.randn(64, 64)).size(0) == 2
        assert [part.shape[0] for part in nested.unbind()] == [300, 200]
        assert (torch.eye(300).to_sparse() @ torch.randn(300, 10)).shape == (300, 10)
        assert torch.quantize_per_tensor(torch.randn(300, 300), 0.1, 0, torch.qint8).dequantize().shape == (300, 300)
        assert torch.func.vmap(lambda a: (a * a).sum())(torch.randn(200, 200)).shape == (200,)
    """,
    "fake tensors, with sizes that are not known": """
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        mode = FakeTensorMode(shape_env=ShapeEnv())
        x = mode.from_tensor(torch.randn(300, 300), static_shapes=False)
        with mode:
            assert (x @ x).relu().view(-1).dim() == 1
    """,
    "profilers of the script see the operators": """
        with torch.profiler.profile() as profile:
            torch.full((512, 512), 3.0) @ torch.full((512, 512), 3.0)
        assert any(event.key == "aten::mm" for event in profile.key_averages())
    """,
}


@pytest.mark.parametrize("threads", ["1", "2"])
def test_what_is_computed(script, threads: str) -> None:
    checks = "\n".join(
        f"def check_{index}():  # {what}\n{textwrap.indent(textwrap.dedent(code), '    ')}"
        for index, (what, code) in enumerate(CHECKS.items())
    )
    calls = "\n".join(f"check_{index}()" for index in range(len(CHECKS)))
    path = script(f"import torch\n{STEP}\n{checks}\n{calls}\nstep()\n")
    done = run_peakmem("run", "--device", "cpu", "--steps", "all", "--json", "-", path, OMP_NUM_THREADS=threads)
    assert done.code == 0, done.out + done.err
    assert done.json["stopped"] == "end"
