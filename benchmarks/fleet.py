"""A step of a fleet against a step of what people write today, measured in one run.

    python benchmarks/fleet.py stochastic-binary --runs 1 32 [--device cuda --runs 1 1155] [--data DIR]
    python benchmarks/fleet.py categorical-autoencoder --runs 8 [--device cuda --runs 200] [--data DIR]
    python benchmarks/fleet.py logic-gates --runs 1 [--device cuda --runs 1 32] [--data DIR]
                                                                  peers: torchlogix 0.2.2, difflogic 0.1.0, if installed
    python benchmarks/fleet.py bars --device cuda                                the four steps that must stay fast
    python benchmarks/fleet.py size --device cuda [--data DIR]                  a step against runs and against neurons
    python benchmarks/fleet.py overhead [--data DIR]              recording, checkpoints and progress

Each prints one row per line and appends it to benchmarks/results.csv: medians of alternating repeats, so that a machine
that slows down slows both. On CUDA our step is a captured graph; a peer is measured as called, compiled, and compiled
and captured where that can be done.

`bars` trains on random images of the data sets' shapes and writes no file, so that it runs where no data is. Another
commit's steps are measured by this file with that commit's packages:

    git worktree add /tmp/before 091f942
    PYTHONPATH=/tmp/before/src:/tmp/before/lab/src:/tmp/before/lab python benchmarks/fleet.py bars --device cuda
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from dst_lab import data
from dst_lab.estimators import DEFAULT, Choice
from dst_lab.fleet.checkpoint import Checkpoint
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoder, CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinary, StochasticBinaryConfig
from recording import Step, captured, record
from torch import nn

LOGIC = [9216, 12_000, 12_000, 12_000, 12_000]
"""The paper's logic network: bits of an image, gates of each layer."""


class PlainBinary(nn.Module):
    """A stochastic binary layer as scripts write it: Bernoulli, and the detach trick."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(logits / 0.7)
        z = torch.bernoulli(torch.sigmoid(logits / 0.1).detach())
        return z + (p - p.detach())


class PlainCode(nn.Module):
    """Categorical codes as scripts write them: 4 latents of 8 classes, drawn and with the detach trick."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        logits = logits.view(-1, 4, 8)
        p = torch.softmax(logits / 0.5, -1)
        drawn = torch.distributions.Categorical(logits=logits.detach() / 2.0).sample()
        return (F.one_hot(drawn, 8) + (p - p.detach())).flatten(1)


def classifier(task: StochasticBinary) -> tuple[nn.Module, Callable[[nn.Module, torch.Tensor], torch.Tensor]]:
    """The network and its loss on the images of an index."""
    images, labels = task.splits["train"]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(task.widths[:-1]):
        layers += [nn.Linear(inputs, outputs), PlainBinary()]
    network = nn.Sequential(*layers, nn.Linear(*task.widths[-2:]))
    return network, lambda network, index: F.cross_entropy(network(images[index]), labels[index])


def autoencoder(
    task: CategoricalAutoencoder,
) -> tuple[nn.Module, Callable[[nn.Module, torch.Tensor], torch.Tensor]]:
    images, layers = task.splits["train"], list[nn.Module]()
    for widths in (task.encoder, task.encoder[::-1]):
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        layers[-1] = PlainCode()

    def loss(network: nn.Module, index: torch.Tensor) -> torch.Tensor:
        x = images[index]
        return F.binary_cross_entropy_with_logits(network(x), x, reduction="sum") / len(x)

    return nn.Sequential(*layers[:-1]), loss


def plain_step(task: Task, network: nn.Module, loss: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> Step:
    """One run, one step, in plain PyTorch."""
    network = network.to(task.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        loss(network, torch.randint(0, task.images, (task.config.batch,), device=task.device)).backward()
        optimiser.step()

    return step


def difflogic_steps(device: torch.device) -> dict[str, Step]:
    """The original's network of the same size, which mixes gates; it cannot be captured. Nothing where it is not
    installed."""
    try:
        from difflogic import GroupSum, LogicLayer
    except ImportError:
        return {}
    layers = [LogicLayer(a, b, device=str(device), connections="unique") for a, b in pairwise(LOGIC)]
    return {"difflogic": partial(logic_step(device), nn.Sequential(*layers, GroupSum(10, tau=100 / 3)).to(device))}


def torchlogix_steps(device: torch.device) -> dict[str, Step]:
    """torchlogix's straight-through network of the same size; nothing where it is not installed."""
    try:
        from torchlogix.layers import GroupSum, LogicDense
    except ImportError:
        return {}
    options = {"device": str(device), "parametrization_kwargs": {"forward_sampling": "gumbel_hard"}}
    layers = [LogicDense(a, b, **options) for a, b in pairwise(LOGIC)]
    network = nn.Sequential(*layers, GroupSum(10, tau=100 / 3)).to(device)
    step = logic_step(device)
    steps: dict[str, Step] = {"torchlogix gumbel_hard": partial(step, network)}
    if device.type == "cuda":
        steps["torchlogix gumbel_hard, compiled"] = compiled = partial(step, torch.compile(network))
        try:
            steps["torchlogix gumbel_hard, compiled and captured"] = captured(compiled)
        except Exception as error:
            print(f"torchlogix's step cannot be captured: {error}")
    return steps


def logic_step(device: torch.device) -> Callable[[nn.Module], None]:
    """A training step of a peer's network, each with its own optimiser."""
    x, y = torch.randint(0, 2, (100, LOGIC[0]), device=device).float(), torch.randint(0, 10, (100,), device=device)
    optimisers: dict[int, torch.optim.Optimizer] = {}

    def step(network: nn.Module) -> None:
        key = id(next(network.parameters()))  # a compiled network has the parameters of its original
        if key not in optimisers:
            optimisers[key] = torch.optim.Adam(network.parameters(), lr=0.01, capturable=device.type == "cuda")
        optimisers[key].zero_grad(set_to_none=True)
        F.cross_entropy(network(x), y).backward()
        optimisers[key].step()

    return step


def measure(steps: dict[str, Step], seconds: float, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds per call, sorted; the candidates take turns."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    calls = 50 if device.type == "cuda" else 5  # a wait for the device takes as long as a short step
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, step in steps.items():
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                step()
            wait()
            times[name].append((time.perf_counter() - start) * 1000 / calls)
    return {name: sorted(values) for name, values in times.items()}


def compare(
    name: str, size: str, task: Task, configs: Sequence[Config], peers: dict[str, Step], seconds: float
) -> None:
    """A fleet's step beside its peers'; the ratio is that of a run's share of it to the fastest peer."""
    steps = {**peers, "fleet": Fleet(task, configs).stepper()}
    times = measure(steps, seconds, task.device)
    middle = {what: values[len(values) // 2] for what, values in times.items()}
    fleet = middle.pop("fleet")
    for what in peers:
        record(name, what, size, times[what], None, task.device)
    ratio = min(middle.values()) / (fleet / len(configs)) if middle else None
    runs = f"{len(configs)} run" + "s" * (len(configs) > 1)
    record(name, "fleet, whole step", f"{size}, {runs}", times["fleet"], ratio, task.device)


def fleet_of(config_type: type[Config], runs: int, seeds: int, **fields: object) -> list[Config]:
    """That many runs at the paper's scale: some seeds, and a temperature for each of these."""
    first = config_type.choice(DEFAULT)
    tau_f, tau_b = (schedule.start for _, schedule in first.temperatures)
    return [
        config_type(
            **{**config_type.paper(), **fields},
            seed=i % seeds,
            estimator=Choice.make("decoupled", tau_f=tau_f + 0.01 * (i // seeds), tau_b=tau_b),
        )
        for i in range(runs)
    ]


def stochastic_binary(args: argparse.Namespace, device: torch.device) -> None:
    for runs in args.runs:
        configs = fleet_of(StochasticBinaryConfig, runs, 5)
        task = StochasticBinary(configs[0], args.data, device)
        peers = {"plain PyTorch, one run": plain_step(task, *classifier(task))}
        compare("stochastic-binary", "batch 128", task, configs, peers, args.seconds)


def categorical_autoencoder(args: argparse.Namespace, device: torch.device) -> None:
    for runs in args.runs:
        configs = fleet_of(CategoricalAutoencoderConfig, runs, 10)
        task = CategoricalAutoencoder(configs[0], args.data, device)
        peers = {"plain PyTorch, one run": plain_step(task, *autoencoder(task))}
        compare("categorical-autoencoder", "batch 200", task, configs, peers, args.seconds)


def logic_gates(args: argparse.Namespace, device: torch.device) -> None:
    config = LogicGatesConfig(**LogicGatesConfig.paper(), estimator=Choice.make("decoupled", tau_f=0.1, tau_b=2.0))
    task, peers = LogicGates(config, args.data, device), {**difflogic_steps(device), **torchlogix_steps(device)}
    for runs in args.runs:
        compare("logic-gates", "4 x 12,000, batch 100", task, [config] * runs, peers, args.seconds)


def random_split(kind: type, images: int, shape: tuple[int, ...], levels: int) -> object:
    """A split of random images, or of random levels of thresholds."""
    random = np.random.default_rng(images)
    values = random.integers(0, levels, (images, *shape), dtype=np.uint8)
    return kind(values, random.integers(0, 10, images))


def bars(args: argparse.Namespace, device: torch.device) -> None:
    """Milliseconds per step of 1,155 binary networks, of 200 autoencoders, and of 1 and 32 logic networks."""
    dense, binarised = (
        {name: random_split(kind, size, shape, levels) for name, size in (("train", 20_000), ("validation", 512))}
        for kind, shape, levels in ((data.Split, (1, 28, 28), 256), (data.Split, (3, 32, 32), 4))
    )
    images = data.Dataset(name="random", classes=10, **dense, test=dense["validation"])
    bits = data.Dataset(name="random", thresholds=3, classes=10, **binarised, test=binarised["validation"])
    data.load, data.load_levels = lambda *_: images, lambda *_: bits
    for task_type, config_type, seeds, runs in (
        (StochasticBinary, StochasticBinaryConfig, 5, 1155),
        (CategoricalAutoencoder, CategoricalAutoencoderConfig, 10, 200),
        (LogicGates, LogicGatesConfig, 1, 1),
        (LogicGates, LogicGatesConfig, 3, 32),
    ):
        configs = fleet_of(config_type, runs, seeds)
        task = task_type(configs[0], None, device)
        step = Fleet(task, configs).stepper()
        times = measure({"fleet": step}, args.seconds, device)["fleet"]
        low, middle, high = (times[int(q * (len(times) - 1))] for q in (0.2, 0.5, 0.8))
        print(f"{config_type.task:24} {runs:5} runs {middle:9.4f} ms per step ({low:.4f} to {high:.4f})", flush=True)
        del step, task
        if device.type == "cuda":
            torch.cuda.empty_cache()


def size(args: argparse.Namespace, device: torch.device) -> None:
    """Steps of fleets of more and more runs, and of wider and wider logic networks."""
    of_tasks: tuple[tuple[type[Task], type[Config], int, int, str | None], ...] = (
        (StochasticBinary, StochasticBinaryConfig, 5, 2048, args.data),
        (CategoricalAutoencoder, CategoricalAutoencoderConfig, 10, 512, args.data),
        (LogicGates, LogicGatesConfig, 3, 128, args.data),
    )
    for task_type, config_type, seeds, most, source in of_tasks:
        name = config_type.task
        task = task_type(fleet_of(config_type, 1, 1)[0], source, device)
        runs = 1
        while runs <= most:
            step = Fleet(task, fleet_of(config_type, runs, seeds)).stepper()
            times = measure({"fleet": step}, 0.5, device)["fleet"]
            record(f"{name} against runs", "fleet, whole step", f"{runs} runs", times, None, device)
            del step
            runs *= 2
    for width in (6_000, 12_000, 24_000, 48_000, 96_000):
        (config,) = fleet_of(LogicGatesConfig, 1, 1, width=width)
        step = Fleet(LogicGates(config, args.data, device), [config]).stepper()
        times = measure({"fleet": step}, 0.5, device)["fleet"]
        record("logic-gates against neurons", "one network", f"4 x {width:,}", times, None, device)


def overhead(args: argparse.Namespace, device: torch.device) -> None:
    """A paper-scale epoch with and without recording, checkpoints and progress; evaluation counted apart."""
    from dst_lab.cli.terminal import Display
    from dst_lab.store import Store
    from rich.console import Console

    choice = Choice.make("decoupled", tau_f=0.1, tau_b=0.7)
    base = {**StochasticBinaryConfig.paper(), "epochs": 1, "estimator": choice}
    (runs,) = args.runs
    configs = [StochasticBinaryConfig(**base, seed=seed) for seed in range(runs)]
    task = StochasticBinary(configs[0], args.data, device)
    bare = Fleet(task, configs)
    step = bare.stepper()
    step()
    start = time.perf_counter()
    for _ in range(bare.steps - 1):
        step()
    training = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        saving = Checkpoint(Path(folder) / "checkpoint.npz")
        fleet = Fleet(task, configs, saving)
        display = Display(Console(stderr=True))
        start = time.perf_counter()
        for _ in range(fleet.steps):
            display(fleet)
        progress = time.perf_counter() - start
        start = time.perf_counter()
        saving.save(fleet)
        checkpoint = time.perf_counter() - start
        records = Fleet(task, configs).train()
        with Store.open(Path(folder) / "store.sqlite", write=True) as store:
            start = time.perf_counter()
            store.put(records)
            recording = time.perf_counter() - start
    # At paper scale a run has 100 epochs; a checkpoint falls due every 60 s or 100 times what it takes, recording once.
    whole = 100 * training
    share = (100 * progress + checkpoint * whole / max(60, 100 * checkpoint) + recording) / whole
    print(
        f"overhead, {runs} runs, {device}: an epoch {training:.1f} s, progress {progress * 1e3:.1f} ms an epoch, "
        f"a checkpoint {checkpoint * 1e3:.0f} ms, recording {recording * 1e3:.0f} ms: {100 * share:.2f}% of 100 epochs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = {
        "stochastic-binary": stochastic_binary,
        "categorical-autoencoder": categorical_autoencoder,
        "logic-gates": logic_gates,
        "bars": bars,
        "size": size,
        "overhead": overhead,
    }
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--runs", type=int, nargs="+", default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data")
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    jobs[args.job](args, torch.device(args.device))


if __name__ == "__main__":
    main()
