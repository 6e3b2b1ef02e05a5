"""Measurements: pure functions, tensors in, numbers out."""

from decoupled_st.diagnostics.bias import BiasVariance, bias_variance, exact_gradient, score_function_gradient
from decoupled_st.diagnostics.codebook import code_usage, effective_codes, straight_through_gain
from decoupled_st.diagnostics.gates import gate_histogram
from decoupled_st.diagnostics.gradients import (
    Agreement,
    GradientSNR,
    active_fraction,
    gradient_agreement,
    gradient_norm,
    gradient_snr,
)
from decoupled_st.diagnostics.temperatures import temperatures
from decoupled_st.diagnostics.usage import perplexity, perplexity_of_counts

__all__ = [
    "Agreement",
    "BiasVariance",
    "GradientSNR",
    "active_fraction",
    "bias_variance",
    "code_usage",
    "effective_codes",
    "exact_gradient",
    "gate_histogram",
    "gradient_agreement",
    "gradient_norm",
    "gradient_snr",
    "perplexity",
    "perplexity_of_counts",
    "score_function_gradient",
    "straight_through_gain",
    "temperatures",
]
