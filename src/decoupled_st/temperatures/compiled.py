"""What a rule in a compiled network needs: a state that is written in the graph that reads it."""

from typing import Any

import torch
from torch import Tensor

from decoupled_st.temperatures.rule import Numbers, Taus

_library = torch.library.Library("decoupled_st", "FRAGMENT")
_library.define("held(Tensor tau) -> Tensor")
_library.impl("held", torch.clone, "CompositeExplicitAutograd")
torch.library.register_fake("decoupled_st::held", torch.empty_like)


def held(taus: Taus | Numbers) -> Taus:
    """The temperatures, kept for the gradient. A compiler would rather keep what they were made from and make them
    again, and by then the state that they were made from has moved on."""
    f, b = (torch.ops.decoupled_st.held(tau) if isinstance(tau, Tensor) else tau for tau in taus)
    return Taus(f, b)  # type: ignore[arg-type]  # a float is as good as a tensor of one


def in_checkpoint() -> bool:
    """True while what is compiled lies inside `torch.utils.checkpoint`, where everything is made again."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    tracer: Any = InstructionTranslator.current_tx().output.current_tracer
    while tracer is not None:
        if "checkpoint" in str(getattr(tracer, "source_target", None)):
            return True
        tracer = tracer.parent
    return False


# What torch.compiler.assume_constant_result does, without importing the compiler.
in_checkpoint._dynamo_marked_constant = True  # type: ignore[attr-defined]
