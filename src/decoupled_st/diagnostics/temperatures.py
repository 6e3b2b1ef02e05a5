"""What rules for temperatures are doing inside a network."""

from torch import nn

from decoupled_st.temperatures.rule import Tempering


def temperatures(network: nn.Module) -> dict[str, dict[str, float]]:
    """What each rule in a network has set and measured, by the name of the module that it is in.

    Args:
        network: any module; layers with constant temperatures are not in the result.

    Returns:
        For each layer `tau_f` and `tau_b` of the last pass of training (NaN before the first; the mean, for a rule
        that sets them row by row; where the estimator draws at a temperature of its own, that is `tau_f`), and what
        the rule remembers: for `SelfTempered` `scale`, the root mean square of the centred logits, `first`, what that
        was in the first pass, `usage`, how evenly the argmax categories are in use, and how many passes there were,
        and how many with a usage.
        Reading them waits for the device.

    Example:
        >>> import torch, decoupled_st as dst
        >>> network = torch.nn.Sequential(torch.nn.Linear(3, 8), dst.nn.Categorical(dst.SelfTempered(steps=9)))
        >>> network(torch.randn(16, 3)).sum().backward()
        >>> dst.diagnostics.temperatures(network)["1"]["passes"]
        1
    """
    return {
        name.removesuffix("tempering").removesuffix("."): module.reading()
        for name, module in network.named_modules()
        if isinstance(module, Tempering)
    }
