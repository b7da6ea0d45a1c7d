"""Trains a small network in PyTorch, with memory from Unified Runtime's pools.

    UR_PYTORCH_LIBRARY=/opt/ur/lib/libur_pytorch.so.0 python3 train.py

Prints
    device: ...
    loss: ... -> ..., it has fallen
    memory of another stream: the data is right
    a graph: the data is right
    two GPUs: the data is right
    peak: ... MB in use, ... MB reserved
"""
import sys

import torch

import ur_allocator


def train(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4096, 256, device=device)
    y = x[:, :8].sum(dim=1, keepdim=True)
    losses = []
    for _ in range(50):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def side_stream(device):
    """A tensor that a second stream uses, freed before that work is done."""
    side = torch.cuda.Stream()
    right = True
    for round in range(20):
        source = torch.full((1 << 20,), round, device=device, dtype=torch.float32)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = source.sum()
        source.record_stream(side)
        del source
        # It may take the memory of `source` only after the sum.
        torch.full((1 << 20,), -1, device=device, dtype=torch.float32)
        side.synchronize()
        right &= total.item() == round * (1 << 20)
    return right


def graph(device):
    """A CUDA graph, replayed while other tensors come and go."""
    x = torch.ones(1 << 16, device=device)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = (x * 2 + 1).sqrt() * 3
    right = True
    for value in range(1, 10):
        x.fill_(value)
        captured.replay()
        other = torch.full((1 << 16,), -1.0, device=device)
        right &= torch.allclose(y, torch.full_like(y, (value * 2 + 1) ** 0.5 * 3))
        del other
    return right


def two_gpus():
    """Tensors that are copied between two GPUs, and a network with a half on each; none without a second one."""
    if torch.cuda.device_count() < 2:
        return None
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    if not (torch.cuda.can_device_access_peer(0, 1) and torch.cuda.can_device_access_peer(1, 0)):
        return None
    right = True
    for size in (1, 1000, 1 << 20, 33 << 20):
        for source, target in ((first, second), (second, first)):
            x = torch.arange(size, device=source, dtype=torch.float32)
            y = x.to(target, non_blocking=True) * 2
            right &= torch.equal(y.cpu(), torch.arange(size, dtype=torch.float32) * 2)
            # Memory that was freed on one GPU and is used again, and a strided copy, which is a kernel's.
            del x
            again = torch.full((size, 2), 3.0, device=target)
            back = again[:, 0].to(source)
            right &= bool((back == 3).all())
    torch.manual_seed(1)
    lower, upper = torch.nn.Linear(512, 512), torch.nn.Linear(512, 1)
    x = torch.randn(256, 512)
    (upper(torch.relu(lower(x))) ** 2).mean().backward()
    wanted = [weight.grad.clone() for weight in (lower.weight, upper.weight)]
    lower.zero_grad()
    upper.zero_grad()
    lower.to(first)
    upper.to(second)
    (upper(torch.relu(lower(x.to(first))).to(second)) ** 2).mean().backward()
    for weight, grad in zip((lower.weight, upper.weight), wanted):
        right &= torch.allclose(weight.grad.cpu(), grad, rtol=1e-2, atol=1e-4)
    return right


def main():
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no CUDA device", file=sys.stderr)
        return 77
    ur_allocator.install()
    device = torch.device("cuda")
    print("device:", torch.cuda.get_device_name(device))
    first, last = train(device)
    print(f"loss: {first:.4f} -> {last:.4f}, it has {'fallen' if last < first else 'NOT fallen'}")
    shared = side_stream(device)
    print("memory of another stream: the data is", "right" if shared else "WRONG")
    replayed = graph(device)
    print("a graph: the data is", "right" if replayed else "WRONG")
    pair = two_gpus()
    if pair is None:
        print("two GPUs: there are none with a link")
    else:
        print("two GPUs: the data is", "right" if pair else "WRONG")
    figures = ur_allocator.stats()
    used, reserved = figures["used_high"] / 1e6, figures["reserved_high"] / 1e6
    print(f"peak: {used:.1f} MB in use, {reserved:.1f} MB reserved")
    if ur_allocator.last_error():
        print(ur_allocator.last_error(), file=sys.stderr)
    right = last < first and shared and replayed and pair is not False and not ur_allocator.last_error()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
