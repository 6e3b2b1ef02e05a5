"""What the modules that choose have in common."""

from torch import nn

from decoupled_st.estimators.spec import Estimator, check_estimator


class Chooser(nn.Module):
    """A module with an estimator, which may be replaced during training, and a rule for `.eval()`."""

    def __init__(self, estimator: Estimator, deterministic: bool) -> None:
        super().__init__()
        self.estimator = estimator
        self.deterministic = deterministic

    @property
    def estimator(self) -> Estimator:
        """What the choice is made by; checked when it is assigned."""
        return self._estimator

    @estimator.setter
    def estimator(self, value: Estimator) -> None:
        self._estimator = check_estimator(value)

    def in_force(self) -> Estimator:
        """The estimator of this pass: its argmax where `.eval()` and `deterministic` say so."""
        argmax = self.deterministic and not self.training
        return self.estimator.deterministic() if argmax else self.estimator
