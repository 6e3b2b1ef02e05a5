"""Tokenisers on CIFAR-10: one autoencoder, 64 tokens per image, ours by default arguments against the peers' own code.

    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py DIR OUT --search --seconds 150
    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py DIR OUT --seconds 380

DIR holds cifar-10-batches-bin, PEERS vector-quantize-pytorch as source. Each run appends a row to OUT, in which the
judged runs find what the search has chosen. docs/codebooks.md says how the rows are judged, and was written before the
runs. Several processes share one GPU (start `nvidia-cuda-mps-control -d` before).

The search: 1,500 steps at 16,384 codes, without the last 1,500 training images, on which it is measured; all runs of it
are trained together. The best learning rate of FSQ and FSP, and the best rate, features and normalisation of SimVQ are
what the judged runs take. There the four methods of a seed and a size are trained together for 10,000 steps, or for as
many as end in time. Then a transformer learns the tokens of one seed, up to 16,384 codes (token_prior.py).
Measured on the 10,000 test images: PSNR of the mean squared error, share of codes that any token chooses, perplexity.
"""

import argparse
import csv
import fcntl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from autoencoder import FEATURES, Autoencoder, OfImages, load, measure, pixels, train_together
from token_prior import Run, second_stage
from torch import Tensor, nn

import decoupled_st as dst

STEPS, SEARCH, HELD_OUT, MIDDLE, PICTURED = 10_000, 1_500, 1_500, 16_384, 2_000
METHODS = ("Codebook", "FSQ", "FSP", "SimVQ")
SHARES = (((262_144, 2_000),), ((16_384, 2_000),), ((512, 2_000),))
"""The sizes and seeds that each process trains."""
SECOND = 0.2
"""The part of its time that the second stage has, at least."""
LEVELS = {512: (8, 8, 8), 1_024: (8, 8, 4, 4), 16_384: (8, 8, 8, 8, 4), 262_144: (8,) * 6}
CONFIG = ("task", "part", "estimator", "codes", "seed", "steps", "lr", "features", "normalise")
COLUMNS = (
    *CONFIG,
    "history.psnr",
    "history.usage",
    "history.perplexity",
    "history.bits",
    "history.train_bits",
    "provenance.step_ms",
    "provenance.seconds",
    "provenance.device_name",
    "provenance.torch",
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
    }
    return made[run["estimator"]]()


def searched() -> list[Run]:
    """Every run of the search."""
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


def settled(name: str, codes: int, seed: int, path: Path) -> Run:
    """A judged run: ours as it comes, the others as the search found best."""
    run: Run = {"part": "judged", "estimator": name, "codes": codes, "seed": seed}
    if name == "Codebook":
        return run | {"lr": 1e-3}
    with path.open(newline="") as file:
        found = [row for row in csv.DictReader(file) if (row["part"], row["estimator"]) == ("search", name)]
    best = max(found, key=lambda row: float(row["history.psnr"]))
    run["lr"] = float(best["lr"])
    return (
        run if name != "SimVQ" else run | {"features": int(best["features"]), "normalise": best["normalise"] == "true"}
    )


def make(runs: list[Run], images: Tensor, test: Tensor, out: Path, steps: int, deadline: float) -> list[Autoencoder]:
    """Train some runs together, measure them and write their rows."""
    start, trainings = time.time(), list[OfImages]()
    for run in runs:
        torch.manual_seed(run["seed"])
        network = Autoencoder(tokeniser(run)).to(images.device, memory_format=torch.channels_last)
        trainings.append(OfImages(network, images, run["lr"], run["seed"]))
    steps, step_ms = train_together(trainings, steps, deadline)
    for run, training in zip(runs, trainings, strict=True):
        run["steps"] = steps
        run |= measure(training.network, test, run["codes"])
        run["provenance.step_ms"], run["provenance.seconds"] = f"{step_ms:.1f}", f"{time.time() - start:.1f}"
        write(run, out)
    return [training.network for training in trainings]


def write(run: Run, out: Path) -> None:
    """One row more."""
    row = {name: str(value).lower() if isinstance(value, bool) else value for name, value in run.items()}
    row |= {"task": "cifar-tokeniser", "provenance.torch": torch.__version__}
    row["provenance.device_name"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(row, flush=True)
    with out.open("a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        csv.DictWriter(file, COLUMNS).writerow(row)


def work(args: argparse.Namespace) -> None:
    """The search, or one process's share of the judged runs."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    images, test = load(args.dir, "data_batch_*.bin", device), load(args.dir, "test_batch.bin", device)
    if args.search:
        make(searched(), images[:-HELD_OUT], images[-HELD_OUT:], args.out, SEARCH, args.deadline)
        return
    runs = [settled(name, *group, args.out) for group in SHARES[args.share] for name in METHODS]
    modelled = all(run["codes"] <= MIDDLE for run in runs)
    left = args.deadline - time.time()
    networks = make(runs, images, test, args.out, STEPS, time.time() + left * (1 - SECOND if modelled else 1))
    for run, network in zip(runs, networks, strict=True):
        if run["seed"] == PICTURED:
            with torch.no_grad():
                keep((network(pixels(test[:8]))[0] + 0.5).clamp(0, 1) * 255, run, args.out)
    if modelled:
        found = second_stage(networks, runs, images, test, args.deadline)
        for run, (numbers, samples) in zip(runs, found, strict=True):
            spent = {"provenance.step_ms": "", "provenance.seconds": ""}
            write(run | numbers | {"part": "prior"} | spent, args.out)
            keep(samples, run | {"part": "prior"}, args.out)


def keep(images: Tensor, run: Run, out: Path) -> None:
    """Images [n, 3, 32, 32] from 0 to 255 beside the table."""
    np.save(out.parent / f"{run['part']}-{run['estimator']}-{run['codes']}.npy", images.round().byte().cpu().numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="after which training ends")
    parser.add_argument("--search", action="store_true", help="the search alone")
    parser.add_argument("--deadline", type=float, help="what the processes are started with")
    parser.add_argument("--share", type=int, default=0, help="as above")
    args = parser.parse_args()
    if args.deadline:
        work(args)
        return
    if not args.out.exists():
        with args.out.open("w", newline="") as file:
            csv.writer(file).writerow(COLUMNS)
    command = [sys.executable, *sys.argv, "--deadline", str(time.time() + args.seconds), "--share"]
    processes = [subprocess.Popen([*command, str(share)]) for share in range(1 if args.search else len(SHARES))]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    main()
