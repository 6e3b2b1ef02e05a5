"""What the tasks share whose networks bring images through categorical codes and back.

pixels -> linear, activation (each hidden layer) -> linear -> latents x classes -> codes -> the same mirrored
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst
from dst_lab.fleet.layers import SLOPE, autoencoder_module, initial_stack, linear
from dst_lab.fleet.task import Parameters, Task
from dst_lab.runs import Config


class CodedImages(Task):
    """The encoder and the decoder; the config has `hidden`, `latents` and `classes`."""

    config: Any
    leaky: ClassVar[bool] = False
    """True where the activation is a LeakyReLU, else ReLU."""

    def initial(self, seed: int) -> Parameters:
        generator = torch.Generator().manual_seed(seed)
        encoder = initial_stack("encoder.", self.encoder, generator)
        return encoder | initial_stack("decoder.", self.encoder[::-1], generator)

    def set_inputs(self, inputs: int) -> None:
        """Set the encoder's widths for images of so many pixels."""
        self.encoder = (inputs, *self.config.hidden, self.config.latents * self.config.classes)

    def features(self, parameters: Parameters, x: Tensor) -> Tensor:
        """What the logit layer sees."""
        return self._activated("encoder", parameters, x)

    def logits_of(self, parameters: Parameters, features: Tensor) -> Tensor:
        """[runs, images, latents, classes]"""
        logits = linear(features, parameters, f"encoder.{len(self.config.hidden)}")
        return logits.view(*logits.shape[:2], self.config.latents, self.config.classes)

    def logits(self, parameters: Parameters, x: Tensor) -> Tensor:
        """[runs, images, latents, classes]"""
        return self.logits_of(parameters, self.features(parameters, x))

    def decode(self, parameters: Parameters, code: Tensor) -> Tensor:
        """[runs, images, pixels], as logits, of codes [runs, images, latents, classes]."""
        hidden = self._activated("decoder", parameters, code.flatten(2))
        return linear(hidden, parameters, f"decoder.{len(self.config.hidden)}")

    def _activated(self, part: str, parameters: Parameters, x: Tensor) -> Tensor:
        for i in range(len(self.config.hidden)):
            x = linear(x, parameters, f"{part}.{i}")
            x = F.leaky_relu(x, SLOPE) if self.leaky else torch.relu(x)
        return x

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """Pixels [..., inputs] from 0 to 1 in, logits of pixels out."""
        assert isinstance(config, cls.config_type)
        sizes: Any = config
        choice = dst.nn.Categorical(estimator, deterministic=deterministic)
        between = (lambda: nn.LeakyReLU(SLOPE)) if cls.leaky else nn.ReLU
        return autoencoder_module(tensors, (sizes.latents, sizes.classes), choice, between)
