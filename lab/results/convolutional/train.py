"""Train convolutional logic networks on one GPU, several at once, and append what each reaches to a table of runs.

    python train.py --data DIR --out runs.csv [--at-once 8] [--minutes 7] [--until TIME] [--keep DIR] [--teacher FILE]
        SPEC [SPEC ..]

DIR holds cifar-10/, mnist/ and fashion-mnist/ in their canonical layouts. A SPEC is KEY=VALUE,KEY=VALUE,.. with fields
of `Run`; specs start in the order given. Each run is a CUDA graph of its whole step on a stream of its own (on a CPU
plain steps). Runs that are not done after so many minutes are left out; a run of steps=0 trains `--until` a time
(seconds since 1970), its schedule by the clock, and is recorded with the steps that this came to. Of runs that are
tested, `--keep` keeps the argmax gates, and those that differ in their seeds alone are tested as one network,
too: their class sums added. `--teacher` is what `teacher.py` has saved, for runs with a weight of the teacher.
"""

import argparse
import csv
import math
import time
import traceback
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import teacher as teachers
import torch
import torch.nn.functional as F
from images import DEVICE, augmented, images_of, split_of, thresholds_of
from torch import Tensor, nn

import decoupled_st as dst


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training.

    Attributes:
        net, dataset: which; MNIST's sizes also train on Fashion-MNIST. With `-whole` nothing is held out.
        estimator: "soft" mixtures at temperature `tau`, or "decoupled" ST with tau_f and tau_b from the start.
        tau_end: of soft gates in the second half of their time.
        anneal: the last share of the steps, which goes by argmax after a soft start, with tau_b; 0 none.
        schedule: the rate falls to 0 by a "cosine" over all steps, or is "flat" and falls while gates are argmax.
        group_tau: what class sums are divided by; 0 the published.
        groups: of channels; 0 the published.
        edges: thresholds of the input's derivatives on either side of 0.
        augment: 0 none, 1 mirror images, 2 mirror images and crops of the image padded by 4 (MNIST: shifts by 2).
        teacher: the teacher's weight w: (1 - w) times the cross-entropy + w tau^2 times the divergence of the class
            probabilities from the teacher's, both at the temperature tau, `teacher_tau`; 0 no teacher.
        pool: "first" position alone gets the gradient; "all" largest in equal parts; "product", 1 - prod(1 - x).
        held_out: training images at the end that are not trained on, and measured as validation images; 0 the lab's.
        test: 1 evaluates the test images, once, at the end.
    """

    net: str = "cifar10-s"
    dataset: str = "cifar10"
    estimator: str = "soft"
    tau: float = 1.0
    tau_end: float = 1.0
    tau_f: float = 0.0
    tau_b: float = 1.0
    anneal: float = 0.25
    wiring: str = "structured"
    groups: int = 0
    thresholds: int = 3
    edges: int = 0
    steps: int = 10_000
    batch: int = 128
    lr: float = 0.08
    schedule: str = "cosine"
    weight_decay: float = 0.002
    beta2: float = 0.999
    smoothing: float = 0.0
    teacher: float = 0.0
    teacher_tau: float = 2.0
    group_tau: float = 0.0
    augment: int = 1
    pool: str = "first"
    held_out: int = 0
    seed: int = 0
    test: int = 0


class Pool(nn.Module):
    """The OR of 2 x 2 positions with another gradient."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
        if self.kind == "all":
            return windows.amax((3, 5))
        rest = 1 - windows
        return 1 - rest[:, :, :, 0, :, 0] * rest[:, :, :, 0, :, 1] * rest[:, :, :, 1, :, 0] * rest[:, :, :, 1, :, 1]


class Training:
    """A network, its optimiser and its step as a CUDA graph."""

    def __init__(self, run: Run, given: argparse.Namespace) -> None:
        self.run, self.done, self.until = run, 0, given.until if not run.steps else 0.0
        self.stream = torch.cuda.Stream() if DEVICE.type == "cuda" else None
        self.generator = torch.Generator(DEVICE).manual_seed(run.seed)
        thresholds, edges = thresholds_of(run.thresholds, run.edges)
        self.net = dst.nn.logic_tree_net(
            run.net,
            dst.Soft(tau=run.tau),
            thresholds=thresholds,
            edges=edges,
            wiring=run.wiring,
            groups=run.groups or None,
            generator=torch.Generator().manual_seed(run.seed),
            device=DEVICE,
        )
        for i, layer in enumerate(self.net):
            if run.pool != "first" and isinstance(layer, dst.nn.OrPool2d):
                self.net[i] = Pool(run.pool)
        if run.group_tau:
            self.net[-1].tau = run.group_tau
        self.rate, self.count = torch.tensor(run.lr, device=DEVICE), torch.zeros((), device=DEVICE)
        self.total = torch.tensor(run.steps or math.inf, device=DEVICE)
        cuda = DEVICE.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(),
            lr=self.rate if cuda else run.lr,
            weight_decay=run.weight_decay,
            betas=(0.9, run.beta2),
            fused=True,
            capturable=cuda,
        )
        self.images, self.labels, *self.held = split_of(run.dataset, given.data, run.held_out)
        self.teacher = teachers.load(given.teacher, run.dataset, run.held_out) if run.teacher else None
        hard = dst.Decoupled(tau_f=0.0, tau_b=run.tau_b)
        self.phases = [(0.0, dst.Soft(tau=run.tau)), (1 - run.anneal, hard)]
        if run.tau_end != run.tau:
            self.phases.insert(1, ((1 - run.anneal) / 2, dst.Soft(tau=run.tau_end)))
        if run.estimator == "decoupled":
            self.phases = [(0.0, dst.Decoupled(tau_f=run.tau_f, tau_b=run.tau_b))]
        self.started = time.time()
        self.next_phase()
        if self.until:
            self.started = time.time()  # compiling does not count

    def next_phase(self) -> None:
        """Choose gates by the next estimator from here on."""
        _, self.net.estimator = self.phases.pop(0)
        self.replay = self.captured() if self.stream else self.step

    def step(self) -> None:
        run = self.run
        self.count += 1
        share = self.count / self.total
        if run.schedule == "flat":
            share = ((share - 1 + run.anneal) / run.anneal).clamp(min=0)
        self.rate.copy_(run.lr * 0.5 * (1 + torch.cos(math.pi * share)))
        if not self.stream:
            self.optimiser.param_groups[0]["lr"] = float(self.rate)
        index = torch.randint(len(self.images), (run.batch,), generator=self.generator, device=DEVICE)
        x = self.images[index]
        x = augmented(x, run.augment, self.generator) if run.augment else x
        scores = self.net(x)
        loss = F.cross_entropy(scores, self.labels[index], label_smoothing=run.smoothing)
        if self.teacher is not None:
            loss = (1 - run.teacher) * loss + run.teacher * divergence(scores, self.teacher(x), run.teacher_tau)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def captured(self) -> "torch.cuda.CUDAGraph.replay":
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
                self.done += 1
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        self.graph = graph
        return graph.replay

    @property
    def share(self) -> float:
        """The part of the training that is done."""
        if not self.until:
            return self.done / self.run.steps
        return (time.time() - self.started) / (self.until - self.started)

    def train(self, steps: int) -> None:
        """Enqueue some steps; by the clock, once those before are done."""
        if self.until and self.stream:
            self.stream.synchronize()
        with torch.cuda.stream(self.stream):
            if self.until and self.done > 3:
                self.total.fill_(self.done / self.share)
            for _ in range(steps if self.until else min(steps, self.run.steps - self.done)):
                self.replay()
                self.done += 1
        if self.phases and self.phases[0][0] <= self.share < 1:
            self.next_phase()


def divergence(scores: Tensor, taught: Tensor, tau: float) -> Tensor:
    """tau^2 KL(softmax(taught / tau) || softmax(scores / tau)), mean over images."""
    logarithms = F.log_softmax(scores / tau, -1), F.log_softmax(taught / tau, -1)
    return tau**2 * F.kl_div(*logarithms, reduction="batchmean", log_target=True)


@torch.no_grad()
def scores_of(net: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([net(x) for x in images.split(500)])


def share_right(scores: Tensor, labels: Tensor) -> float:
    return int((scores.argmax(-1) == labels).sum()) / len(labels)


def result(training: Training, given: argparse.Namespace) -> tuple[dict[str, object], Tensor | None]:
    """The row of a training that is done, and the class sums of the test images where it is tested."""
    run, net, scores = training.run, training.net, None
    if training.stream:
        training.stream.synchronize()
    seconds = time.time() - training.started
    run = replace(run, steps=training.done)
    row: dict[str, object] = {}
    if not run.dataset.endswith("-whole"):
        images, labels = training.held
        row["history.validation_accuracy"] = share_right(scores_of(net.eval(), images), labels)
        if run.estimator == "soft" and not run.anneal:
            row["history.validation_accuracy_soft"] = share_right(scores_of(net.train(), images), labels)
    if run.test:
        images, labels = images_of(run.dataset, given.data)["test"]
        scores = scores_of(net.eval(), images)
        row["history.test_accuracy"] = share_right(scores, labels)
        if given.keep:
            gates = [layer.logits.argmax(-1).flatten().to(torch.uint8).cpu().numpy() for layer in net.trees]
            name = f"{run.dataset}.{run.net}.{run.seed}"
            np.savez_compressed(given.keep / name, gates=np.concatenate(gates), scores=scores.half().cpu().numpy())
    return line(run, 1) | row | {"provenance.seconds": round(seconds, 1)}, scores


def line(run: Run, members: int) -> dict[str, object]:
    """The cells of a run's config and machine; what does not matter for it is left out."""
    config = asdict(run)
    soft = config["estimator"] == "soft"
    numbers = {name: config.pop(name) for name in ("tau", "tau_f", "tau_b", "tau_end")}
    if soft:
        config |= {"estimator.tau": numbers["tau"], "tau_end": numbers["tau_end"], "hard_tau_b": numbers["tau_b"]}
    else:
        config |= {"estimator.tau_f": numbers["tau_f"], "estimator.tau_b": numbers["tau_b"]}
    if not run.edges:
        del config["edges"]
    if not run.teacher:
        del config["teacher"], config["teacher_tau"]
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    place = {"provenance.device_name": name, "provenance.torch": torch.__version__}
    return {"task": "logic-conv", **config, "members": members, **place}


def train_all(runs: list[Run], given: argparse.Namespace) -> None:
    began, waiting, active = time.time(), list(runs), list[Training]()
    votes = dict[Run, list[Tensor]]()
    while (waiting or active) and time.time() < began + 60 * given.minutes:
        while waiting and len(active) < given.at_once:
            try:
                active.append(Training(waiting.pop(0), given))
            except Exception:  # noqa: PERF203 - the others go on
                traceback.print_exc()
        for training in active:
            training.train(50)
        for training in [t for t in active if t.share >= 1]:
            active.remove(training)
            row, scores = result(training, given)
            write(given.out, row | {"provenance.at_once": given.at_once})
            if scores is not None:
                votes.setdefault(replace(training.run, seed=0), []).append(scores)
    for run, scores_by_seed in votes.items():
        if len(scores_by_seed) > 1:
            labels = images_of(run.dataset, given.data)["test"][1]
            accuracy = share_right(torch.stack(scores_by_seed).sum(0), labels)
            write(given.out, line(run, len(scores_by_seed)) | {"history.test_accuracy": accuracy})
    for training in active:
        print(f"not done: {training.done} of {training.run}", flush=True)


def write(path: Path, row: dict[str, object]) -> None:
    print({key: value for key, value in row.items() if value not in (0, 0.0, "logic-conv")}, flush=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def columns() -> list[str]:
    names = [field.name for field in fields(Run) if field.name not in ("tau", "tau_f", "tau_b", "tau_end")]
    at = names.index("estimator") + 1
    names[at:at] = ["estimator.tau", "estimator.tau_f", "estimator.tau_b", "tau_end", "hard_tau_b"]
    measured = ["validation_accuracy", "validation_accuracy_soft", "test_accuracy"]
    places = ["seconds", "at_once", "device_name", "torch"]
    return ["task", *names, "members", *(f"history.{n}" for n in measured), *(f"provenance.{n}" for n in places)]


COLUMNS = columns()


def parse(spec: str) -> Run:
    kinds = {"str": str, "int": int, "float": float}
    types = {field.name: kinds[getattr(field.type, "__name__", str(field.type))] for field in fields(Run)}
    values = dict(part.split("=") for part in spec.split(","))
    return Run(**{key: types[key](value) for key, value in values.items()})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--until", type=float, default=math.inf)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("runs", nargs="+")
    given = parser.parse_args(arguments)
    runs = [parse(spec) for spec in given.runs]
    if any(run.teacher for run in runs) and given.teacher is None:
        parser.error("a run has a teacher's weight: give --teacher FILE, which teacher.py has saved")
    train_all(runs, given)


if __name__ == "__main__":
    main()
