"""The training loop of a fleet: R runs as one program."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from decoupled_st.diagnostics import gradient_norm
from dst_lab.estimators import Choice, Schedule
from dst_lab.fleet import contract
from dst_lab.fleet.checkpoint import Checkpoint, state
from dst_lab.fleet.chooser import Chooser, Rules
from dst_lab.fleet.layers import compiled
from dst_lab.fleet.optimiser import Optimiser, UpdateRule
from dst_lab.fleet.recording import moves, own_sources, parts_of, provenance, records_of, tensors_of
from dst_lab.fleet.streams import Source, Streams, Use
from dst_lab.fleet.task import Choosers, Metrics, Task, sum_per_run
from dst_lab.runs import Config
from dst_lab.store import Record

Array = npt.NDArray[Any]
Norm = Callable[[], Tensor]
"""The norm of each run's gradient at the latest step, [runs], computed when asked for."""
Step = Callable[[], Norm]
"""Takes one step of every run."""
Report = Callable[["Fleet"], None]


class TrainingStoppedError(Exception):
    """Training was asked to stop. What was done so far is in its checkpoint, where the disk took it."""


class Fleet:
    """Runs that differ in seed, learning rate and temperatures, trained together.

    Every run is itself: its parameters, order of data and noise depend on its own config alone. On a CPU its numbers
    do too, bit for bit with the same number of threads, which rules out: torch.compile, a run axis of 1 in matmuls and
    sums (they round differently, so a lone run is trained with a copy of itself, see `Task.pairs_a_lone_run`) and
    vector tails inside a run (see `task.chunks`): a batch or width that is no multiple of 16 may cost the last bit.
    """

    def __init__(self, task: Task, configs: Sequence[Config], checkpoint: Checkpoint | None = None) -> None:
        self.task, self.members, self.device = task, list(configs), task.device
        self.name = task.config_type.task
        self.steps, self.every = self.members[0].steps_of(task.images)
        self.batches = self.members[0].batches_of(task.images)
        self.step = 0
        self.history: list[tuple[int, dict[str, Array]]] = []
        self.earlier, self._started = 0.0, time.monotonic()
        self.path = dict(task.path)
        sources = own_sources(type(task), self.members[0].estimator)
        self.sources = {key: mark for key, (_, mark) in sources.items()}
        # A lone member is trained with a copy of itself: see `Task.pairs_a_lone_run`.
        pairs = len(self.members) == 1 and self.device.type == "cpu" and task.pairs_a_lone_run
        self.configs = self.members * 2 if pairs else self.members
        self.runs = len(self.configs)
        seeds = [config.seed for config in self.configs]
        self.streams = Streams(seeds, self.device)
        self.parameters = contract.stacked(self.task, "initial", seeds, self.device)
        self.fixed = contract.stacked(self.task, "fixed", seeds, self.device)
        self.buffers = contract.stacked(self.task, "buffers", seeds, self.device)
        rule = UpdateRule.of(self.members[0], self.task.images)
        self.optimiser = Optimiser(self.parameters, [config.lr for config in self.configs], rule)
        self.loss_sum = torch.zeros(self.runs, device=self.device)
        self.bad_step = torch.zeros(self.runs, dtype=torch.int64, device=self.device)
        self.untrained = torch.zeros(self.runs, device=self.device)
        # What changes from step to step is written into these: a captured graph reads the tensors it was made with.
        self.index = torch.zeros(self.runs, self.configs[0].batch, dtype=torch.int64, device=self.device)
        orders = (len(self.streams.seeds), self.batches, self.configs[0].batch)
        self.order = torch.zeros(orders, dtype=torch.int64, device=self.device)
        self.count = torch.zeros((), dtype=torch.int64, device=self.device)
        self.schedules: dict[str, list[Schedule]] = {}
        """The course of every temperature that no rule sets, for each run."""
        for config in self.configs:
            for name, course in config.estimator.temperatures:
                if isinstance(course, Schedule):
                    self.schedules.setdefault(name, []).append(course)
        self.taus = {
            name: torch.tensor([schedule.at(0.0) for schedule in schedules], device=self.device)
            for name, schedules in self.schedules.items()
        }
        self.courses = self._courses(0)
        rules = Rules(self.choice, self.runs, self.device, self.steps)
        self.rules = rules if rules.parts else None
        if self.rules:
            self._count_places(self.rules)
        self._epoch = -1
        self.checkpoint = checkpoint
        if checkpoint:
            checkpoint.restore(self)

    def train(
        self, report: Report | None = None, stop: Callable[[], bool] | None = None, networks: bool = False
    ) -> list[Record]:
        """Train to the end and return each run's whole history. `stop` is asked after every step. `networks`: with what
        was trained of every run that is done."""
        self._started = time.monotonic()
        advance = self.stepper()
        while self.step < self.steps:
            norm = advance()
            if self.step == 1:
                self.untrained.copy_(self.loss_sum)  # of the first batch, before any update
            if self.step % self.every == 0 or self.step == self.steps:
                self.evaluate(norm)
            if report:
                report(self)
            if stop and stop():
                if self.checkpoint:
                    self.checkpoint.save(self)
                raise TrainingStoppedError
            if self.checkpoint and self.checkpoint.due():
                self.checkpoint.save(self)
        self.synchronise()
        artefacts = self.task.artefacts(self._all(), self._choosers(Use.EVALUATE))
        artefacts = contract.check_artefacts(self.name, artefacts, self.runs)
        return records_of(self, artefacts, tensors_of(self) if networks else {})

    @property
    def seconds(self) -> float:
        """The seconds of training so far, those before an interruption included."""
        return self.earlier + time.monotonic() - self._started

    def provenance(self) -> dict[str, Any]:
        """Where the runs come from, if they end now."""
        return provenance(self.device, self.seconds, len(self.members), {**self.path, **self.sources})

    def stepper(self) -> Step:
        """The training step; on CUDA a captured graph."""
        self.count.fill_(self.step)
        advance = self._captured() if self.device.type == "cuda" else self._advance

        def step() -> Norm:
            self._prepare()
            norm = advance()
            self.step += 1
            return norm

        return step

    def _prepare(self) -> None:
        """An epoch's order and temperatures, into tensors that a captured graph reads."""
        epoch = self.step // self.batches
        if epoch != self._epoch:
            size = self.configs[0].batch
            order = self.streams.order(epoch, self.task.images)[:, : self.batches * size]
            self.order.copy_(order.view(len(order), self.batches, size))
            for name, course in self._courses(epoch).items():
                self.courses[name].copy_(course)
            self._epoch = epoch

    def _advance(self) -> Norm:
        """One step of every run, by tensors alone."""
        batch = (self.count % self.batches).expand(self.runs)  # a tensor of no dimension would be read here
        self.index.copy_(self.order[self.streams.rows, batch])
        for name, course in self.courses.items():
            self.taus[name].copy_(course.index_select(0, batch[:1])[0])
        leaves = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        losses = self.task.loss({**self._all(), **leaves}, self.index, self.chooser())
        gradients = contract.gradients_of(self.name, contract.check_loss(self.name, losses, self.index), leaves)
        self.optimiser.step(gradients, self.now)
        note = compiled(_note) if self.device.type == "cuda" else _note
        note(losses.detach(), self.now, self.loss_sum, self.bad_step)
        self.count += 1

        def norm() -> Tensor:
            pairs = (torch.cat([g, g]) if self.runs == 1 else g for g in gradients.values())  # see sum_per_run
            return gradient_norm(pairs, run_dims=1)[: self.runs]

        return norm

    def _captured(self) -> Step:
        """The step as one CUDA graph: short steps would otherwise wait for Python.

        A graph repeats the same kernels on the same tensors, so that whatever differs from step to step is written in
        place: the order of the images and the temperatures of an epoch by `_prepare`, all else by `_advance` itself.
        Warm-up and capture take the step for real, so what it changes is put back afterwards.
        """
        self._prepare()
        changed = [*state(self).values(), self.count]
        kept = [tensor.clone() for tensor in changed]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            norm = self._advance()
        for tensor, value in zip(changed, kept, strict=True):
            tensor.copy_(value)

        def replay() -> Norm:
            graph.replay()
            return norm

        return replay

    def _courses(self, epoch: int) -> dict[str, Tensor]:
        """The temperatures that move in any run, at every step of an epoch: [batches, runs] each."""
        shares = [(epoch * self.batches + batch) / self.steps for batch in range(self.batches)]
        tables: dict[str, Tensor] = {}
        for name, schedules in self.schedules.items():
            if any(map(moves, schedules)):
                values = {schedule: [schedule.at(share) for share in shares] for schedule in set(schedules)}
                of_runs = torch.tensor([values[schedule] for schedule in schedules], device=self.device)
                tables[name] = of_runs.T.contiguous()
        return tables

    def _count_places(self, rules: Rules) -> None:
        """Give the rules a state for every place where choices are made, by a pass that trains nothing."""
        own = {name: buffer.clone() for name, buffer in self.buffers.items()}  # which this pass may move
        with torch.no_grad():
            self.task.loss({**self._all(), **own}, self.index[:, :1], self.chooser(observe=False))
        rules.counted = True
        if not rules.states:
            raise contract.ContractError(
                f"the task {self.name} makes no choice while it trains, so that a rule has nothing to observe: give "
                f"{' and '.join(rules.parts)} as numbers"
            )

    def _all(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.fixed, **self.buffers}

    def chooser(self, observe: bool = True) -> Chooser:
        """The choices of a training step."""
        return Chooser(self.choice, self.taus, Source(self.streams, Use.TRAIN, self.now), self.rules, observe)

    @property
    def choice(self) -> Choice:
        """The estimator that all runs share, with its options; the temperatures are those of the first run."""
        return self.configs[0].estimator

    @property
    def now(self) -> int | Tensor:
        """The step; on CUDA the tensor that a captured graph reads."""
        return self.count if self.device.type == "cuda" else self.step

    def _choosers(self, use: Use) -> Choosers:
        """Choices for passes outside training; each pass has draws of its own, fixed by the step and its number."""
        passes = iter(range(1 << 30))

        def make(stochastic: bool) -> Chooser:
            number = next(passes)
            step = torch.tensor(self.step, device=self.device) if self.device.type == "cuda" else self.step
            source = Source(self.streams, use, step, 1000 * number)
            return Chooser(self.choice, self.taus, source if stochastic else None, self.rules)

        return make

    def evaluate(self, norm: Norm) -> None:
        """Measure every run as it stands now, and keep the row."""
        since = self.step - (self.history[-1][0] if self.history else 0)
        metrics = {"train_loss": self.loss_sum / since, "gradient_norm": norm()}
        for metric, name in parts_of(self.choice.kind).items() if self.courses or self.rules else ():
            if self.rules and name in self.rules.parts:
                metrics[metric] = self.rules.latest(name)
            elif name:
                metrics[metric] = self.taus[name]
        metrics |= self.measure()
        # The last update, too, can break a run, after its last training loss.
        broken = ~metrics["validation_loss"].isfinite() & (self.bad_step == 0)
        self.bad_step += broken * self.step
        row = {
            name: value.detach().cpu().numpy().astype(np.float32)[: len(self.members)]
            for name, value in metrics.items()
        }
        contract.check_shapes(self.name, self.history, row)
        self.history.append((self.step, row))
        self.loss_sum.zero_()

    def measure(self) -> Metrics:
        """What the task measures of every run as it stands now, [runs, ...] each."""
        with torch.no_grad():
            metrics = self.task.evaluate(self._all(), self._choosers(Use.EVALUATE))
        metrics = contract.check_metrics(self.name, metrics, self.runs, "evaluate")
        diagnosed = self.task.diagnose(self._all(), self._choosers(Use.SNR), self.step)
        return metrics | contract.check_metrics(self.name, diagnosed, self.runs, "diagnose")

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _note(losses: Tensor, now: int | Tensor, loss_sum: Tensor, bad_step: Tensor) -> None:
    """Add a step's mean losses, and remember the first step at which a run's is not finite."""
    loss = sum_per_run(losses) / losses.shape[-1]
    loss_sum += loss
    bad_step += (~loss.isfinite() & (bad_step == 0)) * (now + 1)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """torch's number of threads, for the time of a block: on a CPU a run's bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
