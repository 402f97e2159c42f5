"""Who holds the memory: roles against what the script itself computes from its model, to the byte."""

from __future__ import annotations

import pytest

from peakmem.forecast.holders import at_peak
from peakmem.trace.roles import Role
from tests.e2e.recorded_run import record

pytestmark = pytest.mark.torch

START = """
import json, torch
from torch import nn
import torch.nn.functional as F

def size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)

def train(model, optimizer, loss_of, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
"""


def test_an_adamw_step_to_the_byte(script):
    run = record(
        script(
            START
            + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(96), nn.Linear(96, 300), nn.Linear(300, 96)
        self.register_buffer("scale", torch.ones(33))
    def forward(self, x):
        return x + F.dropout(self.second(F.gelu(self.first(self.norm(x)))), 0.1)

model = nn.Sequential(nn.Embedding(77, 96), Block(), Block(), nn.Linear(96, 77)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loss_function = nn.CrossEntropyLoss()

def step():
    tokens, labels = torch.randint(77, (5, 31)).cuda(), torch.randint(77, (5 * 31,)).cuda()
    optimizer.zero_grad()
    loss = loss_function(model(tokens).view(-1, 77), labels)
    loss.backward()
    optimizer.step()

for _ in range(3):
    step()

saved = {}
def pack(t):
    saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return t
with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
    tokens, labels = torch.randint(77, (5, 31)).cuda(), torch.randint(77, (5 * 31,)).cuda()
    loss = loss_function(model(tokens).view(-1, 77), labels)
for known in (*model.parameters(), tokens, labels):
    saved.pop(known.untyped_storage().data_ptr(), None)
parameters = list(model.parameters())
states = [s for state in optimizer.state.values() for s in state.values() if s.is_cuda]
print(json.dumps({
    "parameter": size(parameters), "gradient": size(parameters), "optimizer_state": size(states),
    "buffer": size(model.buffers()), "activation": sum(saved.values()), "input": size([tokens, labels]),
}))
"""
        )
    )
    at_backward = run.requested(run.moment("backward", 1))
    for role in ("parameter", "optimizer_state", "buffer", "activation", "input"):
        assert at_backward[role] == run.said[role], role
    assert at_backward["gradient"] == 0
    after_backward = run.requested(run.moment("backward", 1, end=True))
    assert after_backward["gradient"] == run.said["gradient"]
    assert after_backward["activation"] == 0
    for moment in range(0, len(run.replay), 7):
        assert sum(run.requested(moment).values()) == run.replay.at(moment).requested
    names = run.names(run.moment("backward", 1), Role.PARAMETER)
    assert names["Sequential.1.first.weight"] == 300 * 96 * 4
    assert "exp_avg_sq of Sequential.3.bias" in run.names(run.moment("backward", 1), Role.OPTIMIZER_STATE)


def test_tied_weights_count_once_under_both_names(script):
    run = record(
        script(
            START
            + """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(500, 64), nn.Linear(64, 500, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, x):
        return self.head(self.embed(x))

model = Tied().cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randint(500, (9,)).cuda()
train(model, optimizer, lambda: model(x).sum())
print(size(model.parameters()))
"""
        )
    )
    moment = run.moment("backward", 1, end=True)
    assert run.names(moment, Role.PARAMETER) == {"embed.weight = head.weight": run.said}
    assert run.names(moment, Role.GRADIENT) == {"embed.weight = head.weight": run.said}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_segments_hold_their_inputs_and_compute_the_rest_again(script, reentrant):
    run = record(
        script(
            START
            + f"""
from torch.utils.checkpoint import checkpoint
class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 640), nn.Linear(640, 64)
    def forward(self, x):
        return self.narrow(torch.tanh(self.wide(x)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.parts = nn.Linear(64, 64), nn.ModuleList(Segment() for _ in range(3))
    def forward(self, x):
        x = self.first(x)
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant={reentrant}) + 0
        return x

model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters())
x = torch.randn(100, 64).cuda()
train(model, optimizer, lambda: model(x).pow(2).sum())
print(0)
"""
        )
    )
    rows = 100 * 4
    at_backward = run.requested(run.moment("backward", 1))
    # The inputs of three segments, and what pow(2) saves: 64 values a row each; no wide layer's output is held.
    assert at_backward["activation"] == 4 * 64 * rows
    peak = run.replay.peak_moment()
    assert run.requested(peak)["activation"] >= 640 * rows, "recomputed tensors are activations too"
    assert run.requested(peak)["unattributed"] == 0


def test_a_module_called_several_times_and_views_of_its_output(script):
    run = record(
        script(
            START
            + """
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(50, 50)
    def forward(self, x):
        for _ in range(3):
            x = self.layer(x).view(2, -1, 50).transpose(0, 1).reshape(-1, 50).sigmoid()
        return x

model = Twice().cuda()
optimizer = torch.optim.SGD(model.parameters())
x = torch.randn(40, 50).cuda()
train(model, optimizer, lambda: model(x).sum())
print(0)
"""
        )
    )
    at_backward = run.requested(run.moment("backward", 1))
    # Each sigmoid saves its result, which is also what the next layer saves: three tensors in all.
    assert at_backward["activation"] == 3 * 40 * 50 * 4
    assert at_backward["parameter"] == (50 * 50 + 50) * 4


def test_tensors_made_outside_of_modules(script):
    run = record(
        script(
            START
            + """
weight = torch.randn(300, 300, device="cuda", requires_grad=True)
momentum = torch.zeros(300, 300, device="cuda")
x = torch.randn(70, 300, device="cuda")
for _ in range(3):
    loss = (x @ weight).exp().sum()
    loss.backward()
    with torch.no_grad():
        momentum.mul_(0.9).add_(weight.grad)
        weight -= 0.1 * momentum
        weight.grad = None
print(0)
"""
        )
    )
    peak = at_peak(run.trace)
    assert peak.roles["parameter"] == 300 * 300 * 4 + (-300 * 300 * 4) % 512
    moment = run.replay.peak_moment()
    gradients = max(run.requested(other)["gradient"] for other in range(len(run.replay)))
    assert gradients == 300 * 300 * 4
    assert run.requested(moment)["parameter"] == 300 * 300 * 4


def test_gradient_accumulation_keeps_gradients_by_intent(script):
    run = record(
        script(
            START
            + """
model = nn.Sequential(nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 200)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    for _ in range(4):
        model(torch.randn(2000, 200).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(size(model.parameters()))
"""
        )
    )
    assert [step["backwards"] for step in run.recording["steps"]] == [4, 4, 4]
    peak = at_peak(run.trace, accumulates=True)
    assert run.requested(run.replay.peak_moment())["gradient"] == run.said
    assert not peak.unneeded


def test_what_need_not_be_alive_is_found(script):
    run = record(
        script(
            START
            + """
model = nn.Sequential(nn.Linear(100, 1000), nn.Tanh(), nn.Linear(1000, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, history = 0, []
for _ in range(4):
    outputs = model(torch.randn(300, 100).cuda())
    loss = outputs.pow(2).sum()
    history.append(outputs.detach())
    total = total + model(torch.randn(300, 100).cuda()).sum()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
print(0)
"""
        )
    )
    found = {row.what: row.bytes for row in at_peak(run.trace).unneeded}
    assert found["gradients of the step before"] >= 2 * 100 * 1000 * 4
    assert found["outputs of an earlier step or pass that a variable still holds"] >= 300 * 100 * 4
    assert found["tensors of an earlier forward pass that are still held, by a graph or a list"] >= 300 * 1000 * 4
    assert found["inputs of an earlier step that a variable still holds"] > 0


def test_a_graph_that_is_kept_is_found(script):
    run = record(
        script(
            START
            + """
model = nn.Sequential(nn.Linear(100, 1000), nn.Tanh(), nn.Linear(1000, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(300, 100).cuda()).sum()
    loss.backward(retain_graph=True)
    kept.append(loss)
    optimizer.step()
print(0)
"""
        )
    )
    found = {row.what: row.bytes for row in at_peak(run.trace).unneeded}
    assert found["graph of an earlier step"] >= 3 * 300 * 1000 * 4


def test_evaluation_between_steps(script):
    run = record(
        script(
            START
            + """
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 900, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    model.train()
    optimizer.zero_grad()
    model(torch.randn(4, 3, 32, 32).cuda()).sum().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(torch.randn(64, 3, 32, 32).cuda())
print(json.dumps({"parameter": size(model.parameters()), "buffer": size(model.buffers())}))
"""
        )
    )
    held = run.requested(run.replay.peak_moment())
    # The peak is in the evaluation, on the larger batch: nothing is saved for a backward pass there.
    assert held["activation"] == 0
    assert held["temporary"] >= 64 * 16 * 900 * 4
    assert held["unattributed"] == 0
    for role in ("parameter", "buffer"):
        assert held[role] == run.said[role]
    assert held["optimizer_state"] == run.said["parameter"]


def test_two_models_with_an_optimizer_each(script):
    run = record(
        script(
            START
            + """
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256))
    def forward(self, z):
        return self.net(z)

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))
    def forward(self, x):
        return self.net(x)

generator, critic = Generator().cuda(), Critic().cuda()
for_generator, for_critic = torch.optim.Adam(generator.parameters()), torch.optim.AdamW(critic.parameters())
for _ in range(3):
    z, real = torch.randn(100, 64, device="cuda"), torch.randn(100, 256, device="cuda")
    for_critic.zero_grad()
    (critic(generator(z).detach()).mean() - critic(real).mean()).backward()
    for_critic.step()
    for_generator.zero_grad()
    (-critic(generator(z)).mean()).backward()
    for_generator.step()
print(json.dumps([size(generator.parameters()), size(critic.parameters()), size([z, real])]))
"""
        )
    )
    generator, critic, inputs = run.said
    assert len(run.recording["steps"]) == 3
    held = run.requested(run.moment("backward", 2))
    assert held["parameter"] == generator + critic
    assert held["optimizer_state"] == 2 * (generator + critic)
    assert held["input"] == inputs, "what the generator makes is no input"
    names = run.names(run.moment("backward", 2), Role.PARAMETER)
    assert {"Generator.net.0.weight", "Critic.net.0.weight"} <= set(names)


def test_autocast_copies_of_weights(script):
    run = record(
        script(
            START
            + """
model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters())
x = torch.randn(50, 128).cuda()
def loss_of():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x).float().pow(2).sum()
train(model, optimizer, loss_of)
print(0)
"""
        )
    )
    # Only the second layer's weight is saved (the input wants no gradient); all four copies are alive inside autocast.
    assert run.requested(run.moment("backward", 1))["autocast_copy"] == 256 * 64 * 2
    first, end = run.moment("forward", 1), run.moment("backward", 1)
    assert max(run.requested(m)["autocast_copy"] for m in range(first, end)) == (128 * 256 + 256 + 256 * 64 + 64) * 2


def test_workspaces(script):
    run = record(
        script(
            START
            + """
x = torch.randn(100_000, device="cuda")
order = x.sort()
y = torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
model = nn.Conv2d(16, 32, 3).cuda()
model(torch.randn(8, 16, 64, 64, device="cuda")).sum().backward()
print(0)
"""
        )
    )
    owners, strings = run.trace.owners, run.trace.strings
    names = {strings[int(name)] for name in owners.name[owners.role == Role.WORKSPACE]}
    assert "cuBLAS workspace" in names
    assert any(name.startswith("scratch of aten::sort") for name in names)


def test_parts_that_are_called_one_by_one_have_the_name_of_the_whole(script):
    run = record(
        script(
            START
            + """
class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(50, 20), nn.ReLU())
        self.decoder = nn.Sequential(nn.Linear(20, 50), nn.ReLU())
    def step(self, x):
        return F.mse_loss(self.decoder(self.encoder(x)), x)

model = Autoencoder().cuda()
optimizer = torch.optim.SGD(model.parameters())
x = torch.randn(30, 50).cuda()
train(model, optimizer, lambda: model.step(x))
print(0)
"""
        )
    )
    moment = run.moment("backward", 1)
    names = ["decoder.0.bias", "decoder.0.weight", "encoder.0.bias", "encoder.0.weight"]
    assert sorted(run.names(moment, Role.PARAMETER)) == names
    assert run.requested(moment)["input"] == 30 * 50 * 4
    assert {run.trace.strings[int(name)] for name in run.trace.contexts.name} >= {"encoder.0", "decoder.1"}


def test_a_second_copy_of_the_weights_while_loading(script):
    run = record(
        script(
            START
            + """
model = nn.Linear(1000, 1000).cuda()
checkpoint = {name: torch.empty_like(t) for name, t in model.state_dict().items()}
model.load_state_dict(checkpoint)
optimizer = torch.optim.SGD(model.parameters())
train(model, optimizer, lambda: model(torch.randn(10, 1000, device="cuda")).sum())
print(0)
"""
        )
    )
    (found,) = [row for row in at_peak(run.trace).unneeded if row.what.startswith("a second copy")]
    assert found.bytes >= (1000 * 1000 + 1000) * 4
    assert found.examples[0].name == "state dict being loaded: weight"


def test_buckets_of_data_parallel_training_are_communication_buffers(script):
    run = record(
        script(
            START
            + """
import os, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
store = dist.HashStore()
dist.init_process_group("nccl", store=store, rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300)).cuda())
optimizer = torch.optim.SGD(model.parameters())
x = torch.randn(10, 300).cuda()
train(model, optimizer, lambda: model(x).sum())
print(size(model.parameters()))
dist.destroy_process_group()
"""
        )
    )
    held = run.requested(run.moment("backward", 1))
    # The buckets are as large as all gradients. Those of the first step are made anew before the second; a thread of
    # the process group lets go of the old ones when it comes to it.
    assert held["communication"] in (run.said, 2 * run.said)
    assert held["parameter"] == run.said


def test_a_tensor_that_can_not_be_looked_at_does_no_harm(script):
    run = record(
        script(
            START
            + """
class Strange(nn.Parameter):
    looks = 0
    @property
    def grad(self):
        Strange.looks += 1
        if Strange.looks > 3:
            raise KeyError("no gradient today")

model = nn.Linear(10, 10).cuda()
model.strange = Strange(torch.zeros(3, device="cuda"))
optimizer = torch.optim.SGD([model.weight, model.bias])
train(model, optimizer, lambda: model(torch.randn(5, 10, device="cuda")).sum(), steps=8)
print(0)
"""
        )
    )
    assert any("roles are incomplete" in note and "no gradient today" in note for note in run.trace.meta.notes)
    assert len(run.recording["steps"]) == 8
