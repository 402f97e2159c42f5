"""What scripts do with values: each function asserts what a real card would give."""

import copy
import io
import json
import sys
import traceback

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
import torch.utils.checkpoint
from torch import nn

sys.path.insert(0, sys.argv[1])
import peakmem_inside.values as following

VALUES = following.install("")
KNOWN = VALUES._mode.known
CUDA = "cuda"
CASES = []


def case(function):
    CASES.append(function)
    return function


@case
def views_and_in_place_writes():
    x = torch.arange(6, device=CUDA)
    x.view(2, 3).t()[0] = 9
    assert x.tolist() == [9, 1, 2, 9, 4, 5]
    x.data[1] = 7
    assert x[1] == 7
    y = torch.empty(3, device=CUDA)
    y.fill_(2)
    torch.add(y, 1, out=y)
    torch._foreach_add_([y], 1)
    assert y.tolist() == [4, 4, 4]
    y.set_(torch.ones(2, device=CUDA))
    assert y.tolist() == [1, 1]


@case
def reading_on_the_host():
    x = torch.as_tensor(np.arange(4), device=CUDA)
    assert x.cpu().numpy().tolist() == [0, 1, 2, 3]
    assert torch.zeros(4, dtype=torch.long).copy_(x).sum() == 6
    assert torch.equal(x, torch.arange(4, device=CUDA)) and not torch.equal(x, x + 1)
    assert torch.allclose(x.float(), x.float()) and not torch.allclose(x.float(), x + 1.0)
    assert float(x[2]) == 2.0 and int(x[3]) == 3 and bool(x[1]) and f"{x[1]:d}" == "1" and x.max().item() == 3
    assert x.new_tensor([3, 4]).tolist() == [3, 4]


@case
def masked_mean_of_a_loss():
    layer = nn.Linear(8, 8).to(CUDA)
    mask = torch.tensor([1, 0, 1, 1], dtype=torch.bool).to(CUDA)
    loss = layer(torch.randn(4, 8).to(CUDA))[mask]
    assert loss.shape == (3, 8)
    loss.mean().backward()
    picked = layer(torch.randn(4, 8).to(CUDA)).masked_select(mask[:, None])
    assert picked.shape == (24,)
    picked.sum().backward()


@case
def checks_for_nan():
    out = nn.Linear(8, 8).to(CUDA)(torch.randn(4, 8, device=CUDA))
    large = nn.Linear(8, 2000).to(CUDA)(torch.randn(2000, 8, device=CUDA))
    for x in (out, large, large.detach()):
        assert not torch.isnan(x).any() and not torch.isinf(x).any() and torch.isfinite(x).all()
        assert torch.isnan(x).sum().item() == 0


@case
def loop_until_done():
    done, n, turns = torch.zeros(1, dtype=torch.bool, device=CUDA), torch.tensor(0, device=CUDA), 0
    while not done.item():
        n += 1
        done |= n >= 5
        turns += 1
        assert turns < 10
    assert turns == 5


@case
def loss_scaling():
    layer = nn.Linear(8, 8).to(CUDA)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", growth_interval=2)
    scales = []
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = layer(torch.randn(4, 8, device=CUDA)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [65536.0, 131072.0, 131072.0, 262144.0], scales


@case
def assignment_by_mask():
    x = torch.zeros(10, device=CUDA)
    mask = torch.arange(10, device=CUDA) > 6
    x[mask] = torch.tensor([1.0, 2.0, 3.0], device=CUDA)
    assert x.tolist() == [0] * 7 + [1, 2, 3]
    x[~mask] = 5.0
    x[mask] += 1
    assert x.tolist() == [5] * 7 + [2, 3, 4]
    weight = nn.Parameter(torch.zeros(10, device=CUDA))
    y = torch.zeros(10, device=CUDA)
    y[mask] = weight[mask]
    y.sum().backward()


@case
def unique_labels():
    labels = torch.tensor([3, 1, 1, 7, 3]).to(CUDA)
    unique, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    assert unique.tolist() == [1, 3, 7] and counts.tolist() == [2, 2, 1] and inverse.tolist() == [1, 0, 0, 2, 1]
    assert torch.unique(torch.tensor([[1, 2], [1, 2], [3, 4]], device=CUDA), dim=0).shape == (2, 2)
    assert torch.unique_consecutive(labels).tolist() == [3, 1, 7, 3]
    assert torch.unique(labels > 2).tolist() == [False, True]


@case
def label_matching():
    labels = torch.tensor([0, 1, 0, 2]).to(CUDA)
    assert torch.nonzero(labels).squeeze(1).tolist() == [1, 3]
    assert len(torch.where(labels > 0)[0]) == 2
    assert torch.bincount(labels, minlength=5).tolist() == [2, 1, 1, 0, 0]
    assert torch.repeat_interleave(labels, labels).tolist() == [1, 2, 2]
    assert F.one_hot(labels).shape == (4, 3)
    boxes = torch.tensor([[10.0, 20.0, 110.0, 130.0]]).to(CUDA)
    assert not (boxes[:, 2:] <= boxes[:, :2]).any()


@case
def lengths_of_ctc():
    log_probs = nn.Linear(5, 6).to(CUDA)(torch.randn(20, 3, 5, device=CUDA)).log_softmax(-1)
    targets = torch.randint(1, 6, (3, 4)).to(CUDA)
    lengths, target_lengths = torch.tensor([20, 18, 15]).to(CUDA), torch.tensor([4, 3, 2]).to(CUDA)
    assert lengths.tolist() == [20, 18, 15]
    F.ctc_loss(log_probs, targets, lengths.tolist(), target_lengths.tolist()).backward(retain_graph=True)
    F.ctc_loss(log_probs, targets, lengths, target_lengths).backward(retain_graph=True)
    nn.CTCLoss(zero_infinity=True)(log_probs, targets, lengths.cpu(), target_lengths.cpu()).backward()


@case
def packed_sequences():
    lstm = nn.LSTM(3, 4, batch_first=True).to(CUDA)
    x, lengths = torch.randn(3, 7, 3).to(CUDA), torch.tensor([7, 4, 2]).to(CUDA)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
    out, back = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
    assert out.shape == (3, 7, 4) and back.tolist() == [7, 4, 2]
    mask = torch.arange(7, device=CUDA)[None] < lengths[:, None]
    assert out[mask].shape == (13, 4)
    out.sum().backward()


@case
def routing_to_experts_is_balanced():
    experts = 4
    x = torch.randn(64, 8, device=CUDA, requires_grad=True)
    gate = nn.Linear(8, experts).to(CUDA)
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(experts)).to(CUDA)
    weights, chosen = gate(x).softmax(-1).topk(2)
    out, tokens = torch.zeros_like(x), []
    for expert in range(experts):
        token, slot = torch.where(chosen == expert)
        tokens.append(len(token))
        out.index_add_(0, token, layers[expert](x[token]) * weights[token, slot, None])
    out.sum().backward()
    assert tokens == [32] * 4, tokens
    assert torch.bincount(chosen.view(-1), minlength=experts).tolist() == [32] * 4
    assert any("indices from topk" in row["assumed"] for row in VALUES.assumptions())


@case
def random_numbers_leave_generators_alone():
    host, offset = torch.get_rng_state().clone(), torch.cuda.default_generators[0].get_offset()
    assert sorted(torch.randperm(10, device=CUDA).tolist()) == list(range(10))
    numbers = torch.randint(0, 9, (1000,), device=CUDA)
    assert numbers.min() >= 0 and numbers.max() == 8
    assert (torch.get_rng_state() == host).all() and torch.cuda.default_generators[0].get_offset() >= offset
    torch.manual_seed(3)
    first = torch.rand(3, device=CUDA).tolist()
    assert 0 < first[0] < 1 and first != torch.rand(3, device=CUDA).tolist()
    torch.manual_seed(3)
    assert first == torch.rand(3, device=CUDA).tolist()


@case
def writes_in_the_backward_pass_are_noticed():
    weight = nn.Parameter(torch.ones(3, device=CUDA))
    read, unread, kept = (torch.zeros(3, device=CUDA) for _ in range(3))
    assert read.sum().item() == 0
    weight.register_hook(lambda grad: read.add_(1))
    weight.register_hook(lambda grad: unread.add_(1))
    (weight * 1).sum().backward()
    assert KNOWN.find(read) is None and KNOWN.find(unread) is None and KNOWN.find(kept) is not None


@case
def weights_and_running_statistics_are_unknown():
    parameter = nn.Parameter(torch.zeros(3, device=CUDA))
    parameter.sum().backward()
    torch.optim.SGD([parameter], lr=1.0).step()
    assert KNOWN.find(parameter.data) is None
    norm = nn.BatchNorm1d(3).to(CUDA)
    norm(torch.randn(4, 3, device=CUDA))
    assert KNOWN.find(norm.running_mean) is None and norm.num_batches_tracked.item() == 1


@case
def recomputation_agrees():
    weight = nn.Parameter(torch.randn(40, 3, device=CUDA))
    mask = torch.arange(40, device=CUDA) % 4 == 0
    for reentrant in (False, True, False):
        out = torch.utils.checkpoint.checkpoint(lambda x: (x * 2)[mask].exp(), weight, use_reentrant=reentrant)
        assert out.shape == (10, 3)
        out.sum().backward()


@case
def closures_hold_a_forward_pass():
    weight, mask = nn.Parameter(torch.ones(3, device=CUDA)), torch.tensor([True, False, True], device=CUDA)

    def closure():
        assert weight[mask].shape == (2,)
        loss = (weight[mask] ** 2).sum()
        loss.backward()
        return loss

    torch.optim.SGD([weight], lr=0.1).step(closure)
    torch.optim.LBFGS([weight]).step(closure)
    assert mask.sum() == 2


@case
def inference_mode():
    with torch.inference_mode():
        x = torch.tensor([1, 2, 3], device=CUDA)
        x[0] = 5
        x += 1
        assert x.tolist() == [6, 3, 4] and x[x > 3].tolist() == [6, 4]
    with torch.no_grad():
        assert x.sum() == 13


@case
def function_transforms():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=CUDA)
    assert torch.func.vmap(lambda row: row.sum())(x).tolist() == [3, 7]
    assert torch.func.grad(lambda v: (v**2).sum())(x).shape == x.shape


@case
def copies_and_checkpoints_of_models():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(CUDA)
    other = copy.deepcopy(model)
    other(torch.randn(4, 4, device=CUDA)).sum().backward()
    other.load_state_dict(model.state_dict())
    torch.save(model.state_dict(), io.BytesIO())


@case
def workers_of_a_data_loader():
    data = torch.utils.data.TensorDataset(torch.arange(12.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True):
        batch = batch.to(CUDA, non_blocking=True)
    assert batch.tolist() == [8, 9, 10, 11]


@case
def other_modes():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        nn.Linear(4, 4).to(CUDA)(torch.ones(2, 4, device=CUDA)).sum().backward()
    assert counter.get_total_flops() > 0
    with torch.device("cuda"):
        assert torch.tensor([1, 2]).tolist() == [1, 2] and torch.arange(3).tolist() == [0, 1, 2]


@case
def what_the_host_can_not_do_is_unknown():
    x = torch.ones(4, device=CUDA, dtype=torch.int32)
    assert torch.histc(x, 2, 0, 2).sum() == 4
    large = torch.ones(3000, 3000, device=CUDA)
    assert large.sum() == 9_000_000 and (large == 1).all()


@case
def compiled_functions():
    from torch._dynamo.utils import counters

    layer = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(CUDA)
    compiled = torch.compile(lambda x, k: layer(x).sum() * k.sum(), backend="aot_eager")
    for _ in range(2):
        lengths = torch.tensor([1, 2]).to(CUDA)
        compiled(torch.randn(4, 8).to(CUDA), lengths).backward()
        assert lengths.tolist() == [1, 2]
    assert dict(counters["frames"]) == {"total": 1, "ok": 1} and not counters["graph_break"]


@case
def sparse_tensors():
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2), (3,)).to(CUDA)
    (x * 2).coalesce()
    assert x.to_dense().shape == (3,)


@case
def sizes_that_hang_on_weights_are_assumed():
    weight = nn.Parameter(torch.randn(40, 3, device=CUDA))
    mask = weight.detach().sum(1) > 0
    assert weight[mask].shape == (20, 3) and mask.sum() == 20
    (weight.sum(1) ** 2)[weight.sum(1) > 0].mean().backward()
    rows = [row for row in VALUES.assumptions() if "0.5 of the elements" in row["assumed"]]
    assert sum(row["count"] for row in rows) >= 3 and all("values_behave.py:" in row["where"] for row in rows)


@case
def what_is_kept_beside_is_no_memory_of_the_script():
    before, memory = anonymous(), VALUES.memory
    held = memory.held
    source = np.ones(1_000_000, dtype=np.int64)
    here = anonymous()
    copies = [torch.from_numpy(source).to(CUDA) for _ in range(4)]
    assert memory.held - held == 32_000_000 and copies[3][-1] == 1
    assert here - before > 7_000_000 and anonymous() - here < 2_000_000
    many = [torch.from_numpy(source).to(CUDA) for _ in range(20)]
    assert memory.held <= memory.highest <= 64 << 20 and many[0][0] == 1
    del copies, many
    torch.ones(3, device=CUDA)
    KNOWN.sweep()
    assert memory.held == held


def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


failed = {}
for function in CASES:
    try:
        function()
    except Exception:
        failed[function.__name__] = traceback.format_exc(limit=-3)
print(json.dumps({"ran": len(CASES), "failed": failed}))
