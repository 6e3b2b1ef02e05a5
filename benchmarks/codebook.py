"""Choices from a codebook, forward and backward: ours, the dense peer as IBQ writes it, and attention as a sketch.

    PYTHONPATH=src python benchmarks/codebook.py [shapes] [entropy] [--seconds 2]     on CUDA: N = 16,384, K = 262,144
    PYTHONPATH=src python benchmarks/codebook.py --small                              N = 1,024, K = 16,384, any device
    PYTHONPATH=src python benchmarks/codebook.py nearest                              the nearest code, copied gradient
    PYTHONPATH=src python benchmarks/codebook.py tune                                 tiles of each kernel, printed only

Each prints one row per line and appends it to benchmarks/results.csv: milliseconds as called from Python, and the peak
of memory beyond x, codes and the incoming gradient, which counts q and the gradients of x and codes. What does not fit
into memory is told and left out. float32 is measured twice on CUDA, as torch's "highest" and "high" (TF32) say.
"""

import argparse
import functools
import gc
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from recording import Step, captured, record
from torch import Tensor

import decoupled_st as dst

Choice = Callable[[Tensor, Tensor], Tensor]
SHAPES = [(64, torch.float32), (64, torch.bfloat16), (256, torch.bfloat16)]
TAU = 1.0


def dense(x: Tensor, codes: Tensor) -> Tensor:
    """Index backpropagation, as IBQ writes it."""
    logits = x @ codes.T / TAU
    soft = logits.softmax(-1)
    index = soft.argmax(-1, keepdim=True)
    hard = torch.zeros_like(logits).scatter_(-1, index, 1.0)
    return (hard - soft.detach() + soft) @ codes


def attention(x: Tensor, codes: Tensor) -> Tensor:
    """The argmax in chunks, and attention for the surrogate: no gradient to the values."""
    with torch.no_grad():
        tops = [(x @ part.T).max(-1) for part in codes.split(8192)]
        best = torch.stack([top.values for top in tops]).argmax(0)
        index = (torch.stack([top.indices for top in tops]) + 8192 * torch.arange(len(tops), device=x.device)[:, None])[
            best, torch.arange(len(x), device=x.device)
        ]
    views = [t[None, None] for t in (x, codes, codes.detach())]
    soft = F.scaled_dot_product_attention(*views, scale=1 / TAU)[0, 0]
    return F.embedding(index, codes) + (soft - soft.detach())


def ours(x: Tensor, codes: Tensor, tau_f: float = 0.0) -> Tensor:
    return dst.codebook.decoupled(x, codes, tau_f=tau_f, tau_b=TAU)[0]


def perturbed(x: Tensor, codes: Tensor) -> Tensor:
    return dst.codebook.gumbel_ste(x, codes, tau=TAU)[0]


CHOICES: dict[str, Choice] = {
    "dense, as IBQ writes it": dense,
    "chunked argmax + attention": attention,
    "decoupled, argmax": ours,
    "decoupled, drawn": functools.partial(ours, tau_f=0.5),
    "gumbel_ste": perturbed,
}


def dense_penalty(x: Tensor, codes: Tensor) -> Tensor:
    """IBQ's entropy penalty."""
    p, log_p = (f(x @ codes.T / 0.01, -1) for f in (torch.softmax, torch.log_softmax))
    mean = p.mean(0)
    return -(p * log_p).sum(-1).mean() + (mean * (mean + 1e-5).log()).sum()


def our_penalty(x: Tensor, codes: Tensor) -> Tensor:
    return dst.codebook.distribution(x, codes, tau=0.01).penalty


def step(
    call: Choice, N: int, K: int, D: int, dtype: torch.dtype, device: torch.device, scale: float | None = None
) -> Step:
    """Forward and backward, with codes of so large entries; by default their scores have variance 1."""
    generator = torch.Generator(device).manual_seed(0)
    x, codes, g = (torch.randn(n, D, device=device, generator=generator) for n in (N, K, N))
    x, codes, g = (
        x.to(dtype).requires_grad_(),
        (codes * (D**-0.5 if scale is None else scale)).to(dtype).requires_grad_(),
        g.to(dtype),
    )

    def run() -> object:
        out = call(x, codes)
        return torch.autograd.grad(out, (x, codes), g if out.dim() else None)

    return run


def peak(run: Step, device: torch.device) -> float:
    """The peak of memory in MiB beyond what was there before."""
    if device.type == "cuda":
        run()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    now = most = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most / 2**20


def times(run: Step, seconds: float, device: torch.device) -> list[float]:
    """Milliseconds per call, sorted; at least three."""
    found: list[float] = []
    run()
    end = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return sorted(found)


def compare(
    name: str,
    calls: dict[str, Choice],
    size: tuple[int, int, int, torch.dtype],
    label: str,
    seconds: float,
    device: torch.device,
) -> None:
    """Time and memory of every call at one size; ratios are to the first, the dense one."""
    N, K, D, dtype = size
    where = f"N {N:,}, K {K:,}, D {D}, {label}"
    first: dict[str, float] = {}
    for what, call in calls.items():
        try:
            run = step(call, N, K, D, dtype, device)
            measured, memory = times(run, seconds, device), peak(run, device)
        except torch.OutOfMemoryError:
            print(f"{name} | {what} | {where} | out of memory", flush=True)
            continue
        finally:
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
        middle = measured[len(measured) // 2]
        ratios = {"time": first.get("time", middle) / middle, "memory": first.get("memory", memory) / memory}
        record(name, what, where, measured, ratios["time"] if first else None, device)
        record(f"{name}, peak memory in MiB", what, where, [memory], ratios["memory"] if first else None, device)
        first = first or {"time": middle, "memory": memory}


def precisions(dtype: torch.dtype, device: torch.device) -> list[tuple[str, str]]:
    """What to set as float32's precision, and what to call it."""
    if dtype != torch.float32:
        return [("highest", str(dtype).removeprefix("torch."))]
    if device.type != "cuda":
        return [("highest", "float32")]
    return [("highest", "float32"), ("high", "float32 as TF32")]


def all_shapes(name: str, calls: dict[str, Choice], args: argparse.Namespace, device: torch.device) -> None:
    N, K = (1_024, 16_384) if args.small else (16_384, 262_144)
    for D, dtype in SHAPES[:1] if args.small else SHAPES:
        for precision, label in precisions(dtype, device):
            torch.set_float32_matmul_precision(precision)
            compare(name, calls, (N, K, D, dtype), label, args.seconds, device)
    torch.set_float32_matmul_precision("highest")


def copied(x: Tensor, codes: Tensor) -> Tensor:
    """The nearest code with the gradient copied, and the two losses of VQ-VAE."""
    q, index = dst.codebook.identity_ste(x, codes.detach())
    chosen = F.embedding(index.int(), codes).float()
    commitment, codebook = F.mse_loss(x.float(), chosen.detach()), F.mse_loss(chosen, x.detach().float())
    return q.float().mean() + 0.25 * commitment + codebook


def nearest(args: argparse.Namespace, device: torch.device) -> None:
    """N = 16,384 tokens: the nearest code alone, the module in training, and vector-quantize-pytorch's, if it is there;
    forward and backward."""
    N = 1_024 if args.small else 16_384
    try:
        from vector_quantize_pytorch import VectorQuantize
    except ImportError:
        VectorQuantize = None
    torch.set_float32_matmul_precision("high")
    for K, D in ((16_384, 8), (16_384 if args.small else 262_144, 16)):
        for dtype in (torch.float32, torch.bfloat16):
            run = step(copied, N, K, D, dtype, device, 1.0)
            where = f"N {N:,}, K {K:,}, D {D}, {'TF32' if dtype == torch.float32 else 'bfloat16'}"
            record(
                "codebook, nearest",
                "identity_ste with two losses",
                where,
                times(run, args.seconds, device),
                None,
                device,
            )
            if device.type == "cuda":
                graph = times(captured(run), args.seconds, device)
                record("codebook, nearest", "the same as a CUDA graph", where, graph, None, device)
        modules = {"dst.nn.Codebook, training": dst.nn.Codebook(K, D, features=D)}
        if VectorQuantize is not None:
            modules["VectorQuantize, training"] = VectorQuantize(dim=D, codebook_size=K)
        for what, module in modules.items():
            module, x = module.to(device), torch.randn(1, N, D, device=device, requires_grad=True)

            def run(module: torch.nn.Module = module, x: Tensor = x) -> object:
                q, _, loss = module(x)
                return torch.autograd.grad(q.mean() + loss.sum(), x)

            where = f"N {N:,}, K {K:,}, D {D}, TF32"
            record("codebook, nearest", what, where, times(run, args.seconds, device), None, device)
            if device.type == "cuda" and isinstance(module, dst.nn.Codebook):
                graph = times(captured(run), args.seconds, device)
                record("codebook, nearest", f"{what}, as a CUDA graph", where, graph, None, device)
    torch.set_float32_matmul_precision("highest")


def tune(args: argparse.Namespace, device: torch.device) -> None:
    """Milliseconds for tiles of each kernel (rows, codes, warps, stages); nothing is recorded."""
    from decoupled_st.kernels.codebook import tiles as kernels

    usual = kernels.tiling
    tiles = {
        "forward": [(r, 128, w, s) for r in (64, 128) for w in (4, 8) for s in (2, 3)],
        "to_x": [(r, c, w, s) for r in (32, 64, 128) for c in (32, 64, 128) for w in (4, 8) for s in (2, 3)],
        "to_codes": [(r, c, w, s) for r in (32, 64) for c in (64, 128) for w in (4, 8) for s in (2, 3)],
    }
    N, K = (1_024, 16_384) if args.small else (16_384, 262_144)
    for D, dtype in SHAPES:
        for kernel, choices in tiles.items():
            found = []
            for tile in choices:
                kernels.tiling = lambda name, *rest, k=kernel, t=tile: t if name == k else usual(name, *rest)
                try:
                    run = step(ours, N, K, D, dtype, device)
                    found.append((times(run, 0.1, device)[1], tile))
                except Exception as error:  # a tile that does not fit is no reason to stop
                    print(f"    {tile}: {type(error).__name__}", flush=True)
            kernels.tiling = usual
            print(f"{kernel}, D {D}, {dtype}:")
            for milliseconds, tile in sorted(found)[:6]:
                print(f"    {tile!s:18} {milliseconds:.2f} ms in all", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=["shapes", "entropy"], help="shapes, entropy, nearest, tune")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--small", action="store_true", help="N = 1,024, K = 16,384, D = 64, float32")
    args = parser.parse_args()
    if unknown := set(args.jobs) - {"shapes", "entropy", "nearest", "tune"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of shapes, entropy, nearest, tune")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.small:
        parser.error("no CUDA device was found: add --small for what a CPU can bear")
    if "shapes" in args.jobs:
        all_shapes("codebook", CHOICES, args, device)
    if "entropy" in args.jobs:
        penalties = {"dense": dense_penalty, "streaming": our_penalty}
        all_shapes("codebook entropy penalty", penalties, args, device)
    if "nearest" in args.jobs:
        nearest(args, device)
    if "tune" in args.jobs:
        tune(args, device)


if __name__ == "__main__":
    main()
