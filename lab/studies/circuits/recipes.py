"""The plans of the study: the smallest size searched with images held out, then every published size.

Training is short on purpose: the number of steps is what some GPU-seconds allow, and the learning rate falls to 0 along
a cosine over them. The published networks took 200,000 steps each; the smallest may take as many here too, where images
held out say that it gains by them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dst_lab.estimators import Choice
from dst_lab.plans import FRESH, Following, Grid, Measured, Plan, Recipes
from dst_lab.plans.plan import Axis, with_value
from dst_lab.plans.recipes import at_paper_scale
from dst_lab.runs import WHOLE, Config
from dst_lab.tasks.logic_gates import LogicGatesConfig


@dataclass(frozen=True)
class Size:
    """A published network, and how it is trained here.

    Attributes:
        layers, width, thresholds: of the network.
        published: per cent of CIFAR-10's test images, soft training, discretised (Petersen et al., 2022).
        steps, group_tau, lr: ours; class sums are divided by about the root of the gates that they sum. Steps, rate
            and mirror images of the smallest are where its search begins.
        augment: "mirror" where networks of the size learn the training images by heart.
        seeds: how many.
    """

    layers: int
    width: int
    thresholds: int
    published: float
    steps: int
    group_tau: float
    lr: float = 0.1
    augment: str = "mirror"
    seeds: int = 3

    @property
    def gates(self) -> int:
        """The number of gates that are trained."""
        return self.layers * self.width


SIZES = {
    "12k": Size(4, 12_000, 3, 51.27, 50_000, 100 / 3, lr=0.05, augment="none"),
    "128k": Size(4, 128_000, 3, 57.39, 25_000, 113.0),
    "256k": Size(5, 256_000, 31, 60.78, 17_000, 160.0),
    "512k": Size(5, 512_000, 31, 61.41, 12_000, 226.0, seeds=2),
    "1m": Size(5, 1_024_000, 31, 62.14, 11_000, 320.0, seeds=2),
}
"""The networks by the name of their recipe. Learning rates, class sums, initialisation and mirror images were chosen on
validation images, in runs that are among the records, and by 4 x 12,000 gates on a tenth of the training images."""
CONSTANTS = Choice.make("decoupled", tau_f=0.2, tau_b=5.0)
"""The temperatures that the paper's searches chose."""
RESIDUAL = 5.0
LONGER: tuple[Axis, ...] = (
    ("steps", (50_000, 100_000, 200_000)),
    ("lr", (0.05, 0.1)),
    ("augment", ("none", "mirror")),
)
"""What the smallest size is searched over."""
LONGER_SEEDS = 5


def config(size: Size, choice: Choice, **fields: Any) -> Config:
    """A run of a size, on all but the images held out."""
    own = {"steps": size.steps, "lr": size.lr, "group_tau": size.group_tau, "residual": RESIDUAL, **fields}
    values = {**LogicGatesConfig.paper(), **own}
    values |= {"layers": size.layers, "width": size.width, "thresholds": size.thresholds}
    values |= {"lr_schedule": "cosine", "evaluate_every": -(-values["steps"] // 10)}
    return LogicGatesConfig(**values, estimator=choice)


def final(size: Size) -> Config:
    """A run that is compared with the published: all training images, the test images measured at the end."""
    return _on_all_images(config(size, CONSTANTS, augment=size.augment))


def _on_all_images(run: Config) -> Config:
    return with_value(run, "dataset", run.dataset + WHOLE)


def search_longer() -> Grid:
    """4 x 12,000, up to 200,000 steps, the published number: with and without mirror images, at two learning rates.

    Images are held out; the setting with the lowest validation loss over training, mean over two seeds, is chosen.
    """
    return Grid(config(SIZES["12k"], CONSTANTS), LONGER, (0, 1))


class OnAllImages(Following):
    """The chosen setting on all training images: nothing is held out any more."""

    def variants(self, config: Config) -> list[Config]:
        return [_on_all_images(config)]


def smallest() -> Plan:
    """4 x 12,000 gates on all training images, as circuits-search-12k chose to train them."""
    return OnAllImages((("circuits-search-12k", search_longer()),), tuple(range(FRESH, FRESH + LONGER_SEEDS)))


def _trained(name: str) -> Callable[[], Plan]:
    size = SIZES[name]

    def recipe() -> Plan:
        return Measured(final(size), (), tuple(range(FRESH, FRESH + size.seeds)))

    recipe.__doc__ = f"{size.layers} x {size.width:,} gates on all training images, for {size.steps:,} steps."
    return recipe


RECIPES = Recipes(
    folder="lab/studies/circuits",
    scales=("paper",),
    plans=at_paper_scale(
        {
            "circuits-12k-short": _trained("12k"),
            "circuits-search-12k": search_longer,
            "circuits-12k": smallest,
            **{f"circuits-{name}": _trained(name) for name in SIZES if name != "12k"},
        }
    ),
    searches=("circuits-search-12k",),
    optional=("circuits-12k-short",),
)
