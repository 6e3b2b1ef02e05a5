"""Numbers of a run that only the paper's tasks have."""

from dst_lab.cards import ARGMAX
from dst_lab.claims import Measure
from dst_lab.records.row import History


def inactive_below(index: int, threshold: float) -> Measure:
    """The share of neurons whose activity lies below one of the absolute thresholds, at the end."""
    name = f"neurons with activity below {threshold:.1e}"
    return Measure(name, "share", -1, lambda h: float(h["inactive_below"].values[-1][index]))


def active() -> Measure:
    """The share of active neurons at the end."""
    return Measure("active neurons", "share", 1, lambda h: 1 - float(h["inactive"].values[-1]))


def gap() -> Measure:
    """How far accuracy by the training forward and by the discretised network lie apart at the last evaluation."""

    def read(history: History) -> float:
        drawn, fixed = (history[f"validation_accuracy{suffix}"].values[-1] for suffix in ("", ARGMAX))
        return abs(float(fixed) - float(drawn))

    return Measure("gap between trained and discretised validation accuracy", "share", -1, read)
