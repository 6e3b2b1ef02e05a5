"""Tokenisers on CIFAR-10: one autoencoder, 64 tokens per image, ours by default arguments against the peers' own code.

    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py DIR OUT --steps 10000 --seeds 1 --rates FSQ=2e-3 FSP=2e-3
    PYTHONPATH=src:PEERS python benchmarks/tokenisers.py DIR OUT --tune SimVQ

DIR holds cifar-10-batches-bin, PEERS vector-quantize-pytorch as source. Several processes take one run after the other
(start `nvidia-cuda-mps-control -d` before), and write one row for each to OUT. `--tune` writes there which of three
learning rates is best at 16,384 codes on 1,500 training images that are held out; `--rates SimVQ=@FILE` reads it. How
the rows are judged stands in docs/codebooks.md, and was written before the runs.

    image -> conv 4x4/2, conv 4x4/2, conv 3x3, two residual blocks, conv 1x1 -> 8 x 8 tokens of 64 features
          -> the tokeniser -> conv 3x3, two residual blocks, two transposed convs 4x4/2 -> image

Batches of 256 training images drawn with replacement, half of them mirrored, shifted by at most 2 pixels; Adam at 1e-3
with a cosine to 0, bfloat16 autocast; loss: squared error over the variance of the training pixels, and what the
tokeniser adds. The step is a CUDA graph where the method allows it. Measured on the test images after training: PSNR of
the mean squared error, share of codes that any token chooses, perplexity.
"""

import argparse
import csv
import fcntl
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst

SIZES = (512, 16_384, 262_144)
WIDTH, FEATURES, BATCH, LR = 128, 64, 256, 1e-3
JUDGED = ("ours", "FSP", "FSQ", "SimVQ")
TAU_B, FIRST_SEED = 0.3, 1_000
LEVELS = {512: [8, 8, 8], 16_384: [8, 8, 8, 8, 4], 262_144: [8] * 6}
COLUMNS = (
    "method",
    "codes",
    "seed",
    "steps",
    "lr",
    "psnr",
    "usage",
    "perplexity",
    "step_ms",
    "captured",
    "device",
    "torch",
)


class Peer(nn.Module):
    """A tokeniser of vector-quantize-pytorch under our contract: images in, and (q, index, loss) out."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.inner = make()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.inner(x.flatten(2).transpose(1, 2))  # [images, tokens, features]
        loss = out[2] if len(out) > 2 else x.new_zeros(())
        return out[0].transpose(1, 2).reshape(x.shape), out[1], loss.sum()


def methods() -> dict[str, Callable[[int], nn.Module]]:
    """A tokeniser of 64 features by its name and the number of codes."""
    import vector_quantize_pytorch as peers

    return {
        "ours": lambda K: dst.nn.Codebook(K, FEATURES, axis=1),
        "FSQ": lambda K: Peer(lambda: peers.FSQ(LEVELS[K], dim=FEATURES)),
        "FSP": lambda K: Peer(lambda: peers.FSP(LEVELS[K], dim=FEATURES, quantize_rate=0.5)),
        "SimVQ": lambda K: dst.nn.SimVQ(K, FEATURES, features=8, axis=1),
        "VectorQuantize": lambda K: Peer(lambda: peers.VectorQuantize(dim=FEATURES, codebook_size=K)),
        "VectorQuantize, revival": lambda K: Peer(
            lambda: peers.VectorQuantize(dim=FEATURES, codebook_size=K, threshold_ema_dead_code=2)
        ),
        "ours, no revival": lambda K: dst.nn.Codebook(K, FEATURES, axis=1, revival=False),
        "ours, Jacobian": lambda K: dst.nn.Codebook(
            K, FEATURES, dst.Decoupled(tau_f=0.0, tau_b=TAU_B), metric="l2", update="ema", features=16, normalise=True,
            losses={"commitment": 0.25}, axis=1,
        ),
    }  # fmt: skip


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = WIDTH // 4
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(WIDTH, inner, 3, padding=1), nn.ReLU(), nn.Conv2d(inner, WIDTH, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Autoencoder(nn.Module):
    def __init__(self, tokeniser: nn.Module) -> None:
        super().__init__()
        half = WIDTH // 2
        self.encoder = nn.Sequential(
            nn.Conv2d(3, half, 4, 2, 1), nn.ReLU(), nn.Conv2d(half, WIDTH, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1), Residual(), Residual(), nn.ReLU(), nn.Conv2d(WIDTH, FEATURES, 1),
        )  # fmt: skip
        self.tokeniser = tokeniser
        self.decoder = nn.Sequential(
            nn.Conv2d(FEATURES, WIDTH, 3, padding=1), Residual(), Residual(), nn.ReLU(),
            nn.ConvTranspose2d(WIDTH, half, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(half, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(images.device.type, torch.bfloat16, cache_enabled=False):
            q, index, loss = self.tokeniser(self.encoder(images))
            return self.decoder(q).float(), index, loss


def load(folder: Path, names: str, device: torch.device) -> Tensor:
    """The images [n, 3, 32, 32] of the files of these names, as bytes."""
    raw = [np.fromfile(path, np.uint8) for path in sorted((folder / "cifar-10-batches-bin").glob(names))]
    return torch.from_numpy(np.concatenate([r.reshape(-1, 3073)[:, 1:] for r in raw])).to(device).view(-1, 3, 32, 32)


def pixels(images: Tensor) -> Tensor:
    """From -0.5 to 0.5."""
    return (images.float() / 255 - 0.5).contiguous(memory_format=torch.channels_last)


def train(network: Autoencoder, images: Tensor, steps: int, rate: float = LR) -> tuple[float, bool]:
    """Milliseconds per step, and whether the step was captured."""
    device = images.device
    variance = pixels(images[:10_000]).var()
    lr, step = torch.tensor(LR, device=device), torch.zeros((), device=device)
    place = torch.arange(32, device=device)
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, fused=True, capturable=True)

    def one() -> None:
        picked = torch.randint(len(images), (BATCH, 1, 1), device=device)
        down, right = (place + torch.randint(-2, 3, (BATCH, 1), device=device) for _ in range(2))
        right = torch.where(torch.rand(BATCH, 1, device=device) < 0.5, right, 31 - right)
        inside = images.movedim(1, -1)[picked, down.clamp(0, 31)[:, :, None], right.clamp(0, 31)[:, None, :]]
        x = pixels(inside.movedim(-1, 1))
        back, _, loss = network(x)
        optimiser.zero_grad(set_to_none=False)
        (F.mse_loss(back, x) / variance + loss).backward()
        lr.copy_(rate * 0.5 * (1 + torch.cos(math.pi * step / steps)))
        optimiser.step()
        step.add_(1)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    call: Callable[[], object] = one
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            one()
        call = graph.replay
    except RuntimeError as error:
        print(f"not captured: {str(error).splitlines()[0]}", flush=True)
        torch.cuda.synchronize()
    start = time.perf_counter()
    for done in range(steps - 3):
        call()
        if done % 200 == 199:
            torch.cuda.synchronize()  # no more than these in the queue
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / (steps - 3), call is not one


@torch.no_grad()
def measure(network: Autoencoder, images: Tensor, codes: int) -> dict[str, float]:
    """PSNR of all images together, and usage and perplexity of all their tokens."""
    network.eval()
    error, counts = 0.0, torch.zeros(codes, device=images.device)
    for part in images.split(500):
        x = pixels(part)
        back, index, _ = network(x)
        error += (back - x).double().square().sum().item()
        counts += torch.bincount(index.flatten().long(), minlength=codes)
    share = counts.double() / counts.sum()
    return {
        "psnr": -10 * math.log10(error / images.numel()),
        "usage": (counts > 0).double().mean().item(),
        "perplexity": torch.special.entr(share).sum().exp().item(),
    }


def plan_of(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Method, codes and seed of every run: what is judged first, the longest of it first, what is tuned last."""
    judged = [(name, K, 0) for name_set in (JUDGED[:3], JUDGED[3:]) for K in reversed(SIZES) for name in name_set]
    judged = [(name, K, seed) for seed in range(args.seeds) for name, K, _ in judged]
    others = [(name, K, 0) for K in (16_384, 512) for name in methods() if name not in JUDGED]
    return judged + (others if args.others else [])


def rate_of(method: str, rates: list[str]) -> float:
    """The learning rate of a method; of a file, once it is there."""
    given = dict(pair.split("=") for pair in rates).get(method, str(LR))
    if not given.startswith("@"):
        return float(given)
    while not Path(given[1:]).exists():
        time.sleep(1)
    return float(Path(given[1:]).read_text())


def tune(args: argparse.Namespace) -> None:
    """Write the best of three learning rates."""
    device = torch.device("cuda")
    images = load(args.dir, "data_batch_*.bin", device)
    found = {}
    for rate in (5e-4, 1e-3, 2e-3):
        torch.manual_seed(0)
        network = Autoencoder(methods()[args.tune](16_384)).to(device, memory_format=torch.channels_last)
        train(network, images[:-1500], 1_500, rate)
        found[rate] = measure(network, images[-1500:], 16_384)["psnr"]
    print(f"{args.tune}: {found}", flush=True)
    args.out.with_suffix(".part").write_text(str(max(found, key=lambda rate: found[rate])))
    args.out.with_suffix(".part").replace(args.out)


def work(args: argparse.Namespace) -> None:
    """Take runs from the plan, one after the other, until none is left or the time is over."""
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    images, test = load(args.dir, "data_batch_*.bin", device), load(args.dir, "test_batch.bin", device)
    make, plan = methods(), plan_of(args)
    while (number := take(args.out.with_suffix(".next"))) < len(plan):
        method, codes, seed = plan[number]
        torch.manual_seed(FIRST_SEED + seed)
        rate = rate_of(method, args.rates)
        try:
            network = Autoencoder(make[method](codes)).to(device, memory_format=torch.channels_last)
            step_ms, captured = train(network, images, args.steps, rate)
            found = measure(network, test, codes)
        except Exception as error:  # one method's failure is said, and not the end of the others
            print(f"{method}, {codes} codes, seed {seed}: {type(error).__name__}: {error}", flush=True)
            continue
        row = [method, codes, seed, args.steps, rate, f"{found['psnr']:.4f}", f"{found['usage']:.4f}",
               f"{found['perplexity']:.1f}", f"{step_ms:.3f}", captured,
               torch.cuda.get_device_name(), torch.__version__]  # fmt: skip
        print(" | ".join(map(str, row)), flush=True)
        with args.out.open("a", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            csv.writer(file).writerow(row)


def take(path: Path) -> int:
    """The number of the next run; each is taken once by all processes together."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0)
        file.truncate(0)
        file.write(str(number + 1))
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rates", nargs="*", default=[], help="learning rates by method, as FSQ=2e-3")
    parser.add_argument("--others", action="store_true", help="the methods that are not judged, too")
    parser.add_argument("--tune", help="a method")
    parser.add_argument("--worker", action="store_true", help="what the processes are started with")
    args = parser.parse_args()
    if args.worker or args.tune:
        (tune if args.tune else work)(args)
        return
    with args.out.open("w", newline="") as file:
        csv.writer(file).writerow(COLUMNS)
    args.out.with_suffix(".next").write_text("0")
    processes = [subprocess.Popen([sys.executable, *sys.argv, "--worker"]) for _ in range(args.workers)]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    main()
