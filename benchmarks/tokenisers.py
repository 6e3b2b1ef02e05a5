"""Tokenisers on CIFAR-10: one autoencoder, 64 tokens per image, ours by default arguments against the peers' own code.

    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py search DIR OUT --seconds 150
    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py judge DIR OUT --seeds 2001 2002 --seconds 300
    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py patches DIR OUT
    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py cost DIR OUT

DIR holds cifar-10-batches-bin, PEERS vector-quantize-pytorch as source. Each run appends a row to OUT, in which the
judged runs find what the search has chosen. docs/codebooks.md says how the rows are judged, and was written before the
runs. Several processes share one GPU (start `nvidia-cuda-mps-control -d` before).

search: 1,500 steps at 16,384 codes, without the last 1,500 training images, on which it is measured; all runs of a
process are trained together. The best learning rate, and for SimVQ the best features and normalisation too, are what
the judged runs take.
judge: the four methods of a seed and a size are trained together for 10,000 steps, or for as many as end in time; a
further seed is begun if the time left is that of the last one. Then, in the first seed and up to 16,384 codes, a
transformer learns the tokens (token_prior.py). Measured on the 10,000 test images: PSNR of the mean squared error,
share of codes that any token chooses, perplexity.
--others: search and judge the other methods, which the rules do not ask for; a process for each of them.
patches: k-means of patches of 4 x 4 pixels, without a network; what is below it says nothing about quantisers.
cost: milliseconds of a step and GiB of each method, trained alone. Compare with and without --compile.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from autoencoder import FEATURES, Autoencoder, OfImages, load, measure, pixels, quality, train_together
from runs import read
from runs import write as write_row
from token_prior import Run, second_stage
from torch import Tensor, nn

import decoupled_st as dst

STEPS, SEARCH, HELD_OUT, MIDDLE, PICTURED = 10_000, 1_500, 1_500, 16_384, 2_000
SECOND = 0.2
"""The part of its time that the second stage has, at least."""
METHODS = ("Codebook", "FSQ", "FSP", "SimVQ")
VECTOR_QUANTIZE: dict[str, dict[str, Any]] = {
    "VectorQuantize": {},
    "VectorQuantize, revival": {"threshold_ema_dead_code": 2},
    "VectorQuantize, revival, copied gradient": {"threshold_ema_dead_code": 2, "rotation_trick": False},
    "VectorQuantize, learned codes": {"ema_update": False, "learnable_codebook": True},
}
"""Its arguments: as it comes it has moving means and the rotation trick, and nothing is revived."""
OTHERS = (*VECTOR_QUANTIZE, "Decoupled")
SIZES = (512, MIDDLE, 262_144)
LEVELS = {512: (8, 8, 8), 1_024: (8, 8, 4, 4), 16_384: (8, 8, 8, 8, 4), 262_144: (8,) * 6}
COLUMNS = (
    *("task", "part", "estimator", "codes", "seed", "steps", "lr", "features", "normalise", "compiled"),
    *(f"history.{name}" for name in ("psnr", "usage", "perplexity", "bits", "train_bits", "ms", "gib")),
    "provenance.step_ms",
)


class Peer(nn.Module):
    """A tokeniser of vector-quantize-pytorch under our contract: images in, and (q, index, loss) out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.inner(x.flatten(2).transpose(1, 2))  # [images, tokens, features]
        loss = out[2] if len(out) > 2 else x.new_zeros(())
        return out[0].transpose(1, 2).reshape(x.shape), out[1], loss.sum()

    def decode(self, index: Tensor) -> Tensor:
        """Of indices [images, height, width]."""
        features = self.inner.indices_to_codes(index.flatten(1))
        return features.transpose(1, 2).unflatten(2, index.shape[1:])


def tokeniser(run: Run) -> nn.Module:
    """What a run trains, of 64 features."""
    import vector_quantize_pytorch as peers

    K, dim = run["codes"], FEATURES
    made: dict[str, Callable[[], nn.Module]] = {
        "Codebook": lambda: dst.nn.Codebook(K, dim, axis=1),
        "FSQ": lambda: Peer(peers.FSQ(list(LEVELS[K]), dim=dim)),
        "FSP": lambda: Peer(peers.FSP(LEVELS[K], dim=dim, quantize_rate=0.5)),
        "SimVQ": lambda: dst.nn.SimVQ(K, dim, features=run["features"], normalise=run["normalise"], axis=1),
        "Decoupled": lambda: dst.nn.Codebook(
            K,
            dim,
            dst.Decoupled(tau_f=0.0, tau_b=0.1),
            update="ema",
            features=16,
            normalise=True,
            metric="l2",
            losses={"commitment": 0.25},
            axis=1,
        ),
    }
    for name, options in VECTOR_QUANTIZE.items():
        made[name] = lambda options=options: Peer(peers.VectorQuantize(dim, K, **options))
    return made[run["estimator"]]()


def searched() -> list[Run]:
    """Every run of the search for the four methods."""
    settings = [
        (1e-3, 8, False),
        (1e-3, 8, True),
        (1e-3, 16, True),
        (1e-3, 64, False),
        (1e-3, 64, True),
        (2e-3, 8, True),
        (2e-3, 16, True),
        (2e-3, 64, False),
    ]
    options = [{"estimator": "SimVQ", "lr": lr, "features": d, "normalise": whether} for lr, d, whether in settings]
    options += [{"estimator": name, "lr": lr} for name in ("FSP", "FSQ") for lr in (1e-3, 2e-3, 4e-3)]
    return [{"part": "search", "codes": MIDDLE, "seed": 0, **one} for one in options]


def settled(name: str, codes: int, seed: int, path: Path, stages: int = 1) -> Run:
    """A judged run: ours as it comes, the others as the search found best."""
    run: Run = {"part": "judged", "estimator": name, "codes": codes, "seed": seed}
    if name == "Codebook":
        return run | {"lr": 1e-3}
    rows = [row for row in read([path]) if (row["part"], row["estimator"]) == ("search", name)]
    best = max((row for row in rows if int(row.get("stages", 1)) == stages), key=lambda row: float(row["history.psnr"]))
    run["lr"] = float(best["lr"])
    if name == "SimVQ" and stages == 1:
        run |= {"features": int(best["features"]), "normalise": best["normalise"] == "true"}
    return run


def shares(args: argparse.Namespace) -> list[list[list[Run]]]:
    """What each process trains: one after the other, the runs that are trained together."""
    if args.action == "search" and not args.others:
        return [[searched()]]
    if args.action == "search":  # one by one: each takes some GB for its tokens times codes
        runs = [{"part": "search", "codes": MIDDLE, "seed": 0, "lr": lr} for lr in (1e-3, 2e-3, 5e-4)]
        return [[[run | {"estimator": name}] for run in runs] for name in OTHERS]
    small = [codes for codes in args.sizes if codes <= MIDDLE]
    if args.others:
        names = {row["estimator"] for row in read([args.out]) if row["part"] == "search"}.intersection(OTHERS)
        pairs = [(name, codes) for name in sorted(names) for codes in small]
        return [[[settled(name, codes, seed, args.out)] for seed in args.seeds] for name, codes in pairs]
    return [[[settled(name, codes, seed, args.out) for name in METHODS] for seed in args.seeds] for codes in args.sizes]


def training_of(run: Run, images: Tensor, args: argparse.Namespace) -> OfImages:
    """The training of a run, which is marked where it is compiled."""
    run |= {"compiled": True} if args.compile else {}
    torch.manual_seed(run["seed"])
    network = Autoencoder(tokeniser(run)).to(images.device, memory_format=torch.channels_last)
    training = OfImages(network, images, run["lr"], run["seed"], compiled=args.compile)
    training.captured = run["estimator"] not in VECTOR_QUANTIZE  # whose steps wait for the GPU
    return training


def train(
    runs: list[Run], images: Tensor, test: Tensor, steps: int, deadline: float, args: argparse.Namespace
) -> list[Autoencoder]:
    """Train some runs together, measure them and write their rows."""
    start = time.time()
    torch.cuda.empty_cache()
    trainings = [training_of(run, images, args) for run in runs]
    steps, step_ms = train_together(trainings, steps, deadline)
    for run, training in zip(runs, trainings, strict=True):
        run["steps"] = steps
        run |= measure(training.network, test, run["codes"])
        spent = {"provenance.step_ms": step_ms, "provenance.seconds": time.time() - start}
        write(run | spent, args.out)
    return [training.network for training in trainings]


def write(run: Run, out: Path) -> None:
    write_row(out, COLUMNS, {"task": "cifar-tokeniser", **run})


def work(args: argparse.Namespace) -> None:
    """One process's share of the search or of the judged runs."""
    images, test, took = *arrays(args.dir), 0.0
    steps = args.steps or (SEARCH if args.action == "search" else STEPS)
    if args.action == "search":
        test, images = images[-HELD_OUT:], images[:-HELD_OUT]
    for runs in shares(args)[args.share]:
        start = time.time()
        if args.deadline - start < took:
            return
        pictured = (args.action, args.others, runs[0]["seed"]) == ("judge", False, PICTURED)
        modelled = pictured and runs[0]["codes"] <= MIDDLE
        left = (args.deadline - start) * (1 - SECOND if modelled else 1)
        networks = train(runs, images, test, steps, start + left, args)
        took = time.time() - start
        if pictured:
            for run, network in zip(runs, networks, strict=True):
                with torch.no_grad():
                    keep((network(pixels(test[:8]))[0] + 0.5).clamp(0, 1) * 255, run, args.out)
        if modelled:
            found = second_stage(networks, runs, images, test, args.deadline)
            for run, (numbers, samples) in zip(runs, found, strict=True):
                write(run | numbers | {"part": "prior"}, args.out)
                keep(samples, run | {"part": "prior"}, args.out)


def arrays(folder: Path) -> tuple[Tensor, Tensor]:
    """Training and test images."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    return load(folder, "data_batch_*.bin", device), load(folder, "test_batch.bin", device)


def patches(args: argparse.Namespace) -> None:
    """Lloyd's k-means of the patches of the training images, from random ones."""

    def cut(images: Tensor) -> Tensor:
        return F.unfold(pixels(images), 4, stride=4).transpose(1, 2).flatten(0, 1)

    def nearest(rows: Tensor, codes: Tensor) -> Tensor:
        return torch.cat([dst.codebook.identity_ste(part, codes, metric="l2")[1] for part in rows.split(1 << 16)])

    images, test = map(cut, arrays(args.dir))
    for size in args.sizes:
        start = time.time()
        torch.manual_seed(0)
        codes = images[torch.randperm(len(images), device=images.device)[:size]]
        for _ in range(steps := args.steps or 20):
            index = nearest(images, codes)
            counts = torch.bincount(index, minlength=size).unsqueeze(1)
            sums = torch.zeros_like(codes).index_add_(0, index, images)
            codes = torch.where(counts > 0, sums / counts, codes)
        index = nearest(test, codes)
        error = (codes[index] - test).double().square().sum().item()
        numbers = quality(error / test.numel(), torch.bincount(index, minlength=size))
        run: Run = {"part": "patches", "estimator": "k-means", "codes": size, "seed": 0, "steps": steps}
        write(run | numbers | {"provenance.seconds": time.time() - start}, args.out)


def cost(args: argparse.Namespace) -> None:
    """Time and memory of some steps of each method by itself."""
    images, _ = arrays(args.dir)
    for codes in args.sizes:
        for name in METHODS + (OTHERS if codes <= MIDDLE else ()):
            run: Run = {"part": "cost", "estimator": name, "codes": codes, "seed": 0, "lr": 1e-3}
            run |= {"features": 8, "normalise": True} if name == "SimVQ" else {}
            before, start = 0, time.time()
            if images.is_cuda:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            training = training_of(run, images, args)
            run["steps"], run["history.ms"] = train_together([training], args.steps or 150, float("inf"))
            if images.is_cuda:
                run["history.gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
            write(run | {"provenance.seconds": time.time() - start}, args.out)
            del training


def keep(images: Tensor, run: Run, out: Path) -> None:
    """Images [n, 3, 32, 32] from 0 to 255 beside the table."""
    np.save(out.parent / f"{run['part']}-{run['estimator']}-{run['codes']}.npy", images.round().byte().cpu().numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("search", "judge", "patches", "cost"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="after which training ends")
    parser.add_argument("--seeds", type=int, nargs="+", default=[PICTURED], help="of the judged runs")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of codes")
    parser.add_argument("--others", action="store_true", help="the methods that the rules do not ask for")
    parser.add_argument("--compile", action="store_true", help="the network through torch.compile")
    parser.add_argument("--steps", type=int, help="fewer than usual, to try it out")
    parser.add_argument("--deadline", type=float, help="what the processes are started with")
    parser.add_argument("--share", type=int, default=0, help="as above")
    args = parser.parse_args()
    if args.action in ("patches", "cost"):
        (patches if args.action == "patches" else cost)(args)
    elif args.deadline:
        work(args)
    else:
        command = [sys.executable, *sys.argv, "--deadline", str(time.time() + args.seconds), "--share"]
        processes = [subprocess.Popen([*command, str(share)]) for share in range(len(shares(args)))]
        sys.exit(max(abs(process.wait()) for process in processes))


if __name__ == "__main__":
    main()
