#!/usr/bin/env python3
"""Steps of PyTorch programs, with PyTorch's allocators and with this project's.

    UR_PYTORCH_LIBRARY=.../libur_pytorch.so.0 pytorch.py [--rounds COUNT] [WORKLOAD...]

Each workload runs with each allocator in a process of its own, in several rounds, so that a host whose speed
changes serves all of them alike. Prints one line for each, with tabs between: workload, allocator, step time in
ms, the least and the greatest step time of a round, peak reserved bytes and peak allocated bytes. A round's step
time is the median of the timed steps, after warm-up ones; the step time is the median of the rounds'. A step is
timed on the host from an idle device to an idle device. The peaks are the greatest of the rounds'.

| workload | step |
|---|---|
| gpt | forward, backward and AdamW of a small GPT, with sequences of changing length |
| resnet | forward, backward and SGD of a residual network, with batches of changing size |
| decode | a token of a decoder whose key and value caches grow by concatenation |
| pair | forward, backward and AdamW of a network with a half on each of two GPUs; not run on a host with one |

Attention is PyTorch's own flash kernel. cuDNN's, the default on some devices, makes a plan for each new length of
a sequence, which takes some ms and hides everything else.

Allocated bytes are as each allocator rounds them. cudaMallocAsync's reserved bytes are those of the driver's pool.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ALLOCATORS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
    "ours": "",
}
WARMUP = 5
# Numbers of timed steps: a decoded token is short.
STEPS = {"gpt": 30, "resnet": 30, "decode": 400, "pair": 60}
# Seconds that a process may take.
LIMIT_S = 60
ROOT = pathlib.Path(__file__).resolve().parents[3]


def gpt(torch):
    nn, functional = torch.nn, torch.nn.functional
    width, heads, layers, vocabulary, longest, batch = 768, 12, 8, 16384, 1024, 8

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            count, length, _ = x.shape
            qkv = self.qkv(self.before(x)).view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*qkv, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(count, length, width))
            return x + self.mlp(self.after(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.blocks(x)))

    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(number):
        length = 512 + 64 * (number * 5 % 9)
        tokens = torch.randint(vocabulary, (batch, length + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def resnet(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            middle = outside // 4
            self.path = nn.Sequential(
                nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
                nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
                nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside),
            )
            same = inside == outside and stride == 1
            short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
            self.short = nn.Identity() if same else short

        def forward(self, x):
            return functional.relu(self.path(x) + self.short(x))

    layers, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for depth, outside, stride in [(3, 256, 1), (4, 512, 2), (6, 1024, 2), (3, 2048, 2)]:
        for at in range(depth):
            layers.append(Residual(inside, outside, stride if at == 0 else 1))
            inside = outside
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(number):
        batch = 48 + 4 * (number * 3 % 5)
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def decode(torch):
    functional = torch.nn.functional
    width, heads, layers, batch = 2048, 16, 16, 16
    options = {"device": "cuda", "dtype": torch.bfloat16}
    weights = [[torch.randn(rows, width, **options) * 0.02 for rows in (3 * width, width)] for _ in range(layers)]
    fresh = lambda: torch.zeros(batch, heads, 128, width // heads, **options)
    caches = [[fresh(), fresh()] for _ in range(layers)]

    @torch.no_grad()
    def step(number):
        x = torch.randn(batch, 1, width, **options)
        for (qkv, out), cache in zip(weights, caches):
            query, key, value = functional.linear(x, qkv).view(batch, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
            cache[0] = torch.cat([cache[0], key], dim=2)
            cache[1] = torch.cat([cache[1], value], dim=2)
            mixed = functional.scaled_dot_product_attention(query, *cache)
            x = x + functional.linear(mixed.transpose(1, 2).reshape(batch, 1, width), out)

    return step


def pair(torch):
    nn = torch.nn
    width, depth = 4096, 4
    devices = [torch.device("cuda:0"), torch.device("cuda:1")]
    half = lambda device: nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]).to(device)
    halves = [half(device) for device in devices]
    optimizer = torch.optim.AdamW([weight for part in halves for weight in part.parameters()], lr=1e-4)

    def step(number):
        x = torch.randn(2048 + 256 * (number * 5 % 9), width, device=devices[0])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            # Activations go to the second GPU, and their gradients come back.
            loss = halves[1](halves[0](x).to(devices[1])).float().square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        for device in devices:
            torch.cuda.synchronize(device)

    return step


WORKLOADS = {"gpt": gpt, "resnet": resnet, "decode": decode, "pair": pair}


def peaks(torch, allocator):
    """Peak reserved and peak allocated bytes."""
    if allocator == "ours":
        import ur_allocator

        figures = ur_allocator.stats()
        return figures["reserved_high"], figures["used_high"]
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()


def measure(workload, allocator):
    import torch

    if allocator == "ours":
        sys.path.insert(0, str(ROOT / "examples/pytorch"))
        import ur_allocator

        ur_allocator.install()
    if workload == "pair" and torch.cuda.device_count() < 2:
        print(f"# {workload} with {allocator} needs two GPUs", flush=True)
        return
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    from torch.nn.attention import SDPBackend, sdpa_kernel

    step = WORKLOADS[workload](torch)
    times = []
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for number in range(WARMUP + STEPS[workload]):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            step(number)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
    reserved, allocated = peaks(torch, allocator)
    print(workload, allocator, f"{statistics.median(times[WARMUP:]):.3f}", reserved, allocated, sep="\t", flush=True)
    if allocator == "ours":
        import ur_allocator

        print(f"# {ur_allocator.report()}", flush=True)
        if ur_allocator.last_error():
            sys.exit(ur_allocator.last_error())


def run(workload, allocator):
    """One process's step time in ms, peak reserved and peak allocated bytes; none of them if this host cannot run it,
    and None if it failed."""
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=ALLOCATORS[allocator])
    if not ALLOCATORS[allocator]:
        del environment["PYTORCH_CUDA_ALLOC_CONF"]
    command = [sys.executable, __file__, "--one", workload, allocator]
    try:
        ended = subprocess.run(command, env=environment, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True)
        code = ended.returncode
    except subprocess.TimeoutExpired:
        code = f"no end within {LIMIT_S} s"
    if code != 0:
        print(f"# {workload} with {allocator} failed: {code}", flush=True)
        return None
    lines = ended.stdout.splitlines()
    for report in lines:
        if report.startswith("#"):
            print(report, flush=True)
    figures = [line.split("\t")[2:] for line in lines if not line.startswith("#")]
    return [float(figure) for figure in sum(figures, [])]


def main():
    if sys.argv[1:2] == ["--one"]:
        return measure(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description="Steps of PyTorch programs with several allocators")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each workload and allocator")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    arguments = parser.parse_args()
    print("workload", "allocator", "step ms", "least", "greatest", "peak reserved", "peak allocated", sep="\t")
    failed = 0
    for workload in arguments.workloads or WORKLOADS:
        rounds = {allocator: [] for allocator in ALLOCATORS}
        for _ in range(arguments.rounds):
            for allocator in ALLOCATORS:
                rounds[allocator].append(run(workload, allocator))
        for allocator, figures in rounds.items():
            if not all(figures):
                failed |= None in figures
                continue
            times, reserved, allocated = zip(*figures)
            steps = [f"{ms:.3f}" for ms in (statistics.median(times), min(times), max(times))]
            print(workload, allocator, *steps, int(max(reserved)), int(max(allocated)), sep="\t", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
