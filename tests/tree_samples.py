"""Small networks of trees for the tests of what computes them at once."""

import torch
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.nn.logic.fused_trees import evaluate_steps
from decoupled_st.nn.logic.tree_network import _steps

SOFT, HARD = dst.Soft(tau=1.0), dst.Decoupled(tau_f=0.0, tau_b=2.0)


def small_network(
    estimator: dst.Estimator, *, scores: bool = True, depth: int = 3, pools: int = 2, tau_b: float | None = None
) -> dst.nn.LogicTreeNetwork:
    """Padding and none, a pool and none, groups; images of 1 x 6 x 6; thresholds that learn where `tau_b` is given."""
    generator = torch.Generator().manual_seed(0)
    layers = [
        dst.nn.Thermometer([0.3, 0.6], tau_b=tau_b),
        dst.nn.LogicConv2d(2, 4, estimator, depth=depth, generator=generator),
        dst.nn.OrPool2d(),
        dst.nn.LogicConv2d(4, 4, estimator, depth=depth, kernel=2, padding=0, groups=2, generator=generator),
        *([dst.nn.OrPool2d()] if pools == 2 else []),
        dst.nn.LogicConv2d(4, 4, estimator, depth=depth, kernel=2, generator=generator),
    ]
    if scores:
        head = dst.nn.LogicTrees(16 if pools == 2 else 36, 12, estimator, depth=depth, groups=2, generator=generator)
        layers += [nn.Flatten(), head, dst.nn.GroupSum(4, 2.0)]
    network = dst.nn.LogicTreeNetwork(*layers)
    for layer in network.trees:
        with torch.no_grad():
            layer.logits.normal_(generator=generator).mul_(2)[..., 3] += 4  # so that layers below matter
    return network


def results(network: dst.nn.LogicTreeNetwork, x: Tensor, g: Tensor) -> list[Tensor]:
    """The scores and the gradients of all parameters: thresholds that learn, and every layer's logits."""
    network.zero_grad()
    y = network(x).mul_(1.0)  # in place, which a view out of the operation would refuse
    y.backward(g)
    return [y.detach(), *(parameter.grad for parameter in network.parameters())]  # type: ignore[list-item]


def exact_results(network: dst.nn.LogicTreeNetwork, x: Tensor, g: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The same by plain torch with values between layers in this dtype; the choices in float64."""
    layers = list(network)[1:]
    bits = network[0](x)
    plan = _steps(layers, bits)
    assert plan is not None
    logits = [layer.logits.detach().double().requires_grad_() for layer in network.trees]
    gates = [layer.estimator.categorical(l) for layer, l in zip(network.trees, logits, strict=True)]
    coefficients = [torch.stack(dst.nn.logic.gates.mixed_coefficients(choice), -1).to(dtype) for choice in gates]
    y = evaluate_steps(bits, coefficients, plan[0])
    y = plan[1](y.flatten(1)) if plan[1] else y
    return [y.detach(), *torch.autograd.grad(y, [*network[0].parameters(), *logits], g.to(dtype))]


def error(values: list[Tensor], exact: list[Tensor]) -> list[float]:
    """The norm of each difference, over the exact one's."""
    return [
        float((a.double().cpu() - b.double().cpu()).norm() / b.double().cpu().norm())
        for a, b in zip(values, exact, strict=True)
    ]
