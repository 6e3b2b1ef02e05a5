"""C3: what each temperature does while the other stays, and whether the two act apart."""

from dst_lab.claims import SEEDS, Verdict
from dst_lab.records import Rows

from studies.paper.claims.evidence import LARGELY, Evidence
from studies.paper.claims.sweeps import ACTIVE, FIRST_NORM, LEAST, NORM, PERPLEXITY, SNR, Sweep, sweep_of
from studies.paper.claims.tasks import CATAE, SBN

NETWORK, AUTOENCODER = SBN.task, CATAE.task
NEAR = 0.1
"""How far from -1 a slope may lie that still reads as 1/tau_b."""
LEFT_OUT = (
    f"A run that diverged, or whose quantity is not known (NaN), is left out of its seed; {LEAST} must be left of each."
)
TRENDS = (
    f"{SEEDS} seeds are trained at each temperature of the sweep. Spearman's rho between temperature and quantity is "
    f"taken within each seed; the {SEEDS} rhos are tested against 0 by exact sign flips, one-sided at 0.025 each way. "
    f"{LEFT_OUT} Supported only if both trends are found; contradicted if one runs the other way; otherwise not "
    "supported."
)
Sweeps = dict[tuple[str, str], Sweep]


def judge_effects(rows: Rows) -> list[Verdict]:
    sweeps = {(tau, task): sweep_of(rows, tau, task) for tau in ("tau_f", "tau_b") for task in (NETWORK, AUTOENCODER)}
    return [_forward(sweeps), _backward(sweeps), _inverse(sweeps), _apart(sweeps)]


def _forward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_f", AUTOENCODER]
    evidence = Evidence([sweep])
    evidence.trend(sweep, PERPLEXITY, 1, judged=True)
    evidence.trend(sweep, SNR, -1, judged=True)
    return evidence.verdict(
        "C3 tau_f",
        AUTOENCODER,
        "A higher tau_f uses more codes, and makes the gradient noisier",
        f"{TRENDS} The quantities: perplexity of the codes at the end of training, which must rise, and the gradient's "
        "signal-to-noise ratio, mean over its measurements during training, which must fall. At tau_f = 0 nothing is "
        "drawn, and the ratio is infinite; the trend without it is shown too. At any other tau_f a ratio that was "
        "not recorded (the gradient of a collapsed run does not vary) is not known.",
    )


def _backward(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    evidence = Evidence([sweep])
    evidence.trend(sweep, NORM, -1, judged=True)
    evidence.trend(sweep, ACTIVE, 1, judged=True)
    evidence.trend(sweep, FIRST_NORM, -1)
    return evidence.verdict(
        "C3 tau_b",
        NETWORK,
        "A higher tau_b makes the gradient smaller, and reaches more neurons",
        f"{TRENDS} The quantities: gradient norm, mean over the evaluations during training, which must fall, and the "
        "share of active neurons at the end of training, which must rise.",
    )


def _inverse(sweeps: Sweeps) -> Verdict:
    sweep = sweeps["tau_b", NETWORK]
    evidence = Evidence([sweep])
    for measure in (NORM, FIRST_NORM):
        for against, direction in ((-1 - NEAR, 1), (-1 + NEAR, -1)):
            evidence.slope(sweep, measure, against, direction, judged=measure is NORM)
    return evidence.verdict(
        "C3 slope",
        NETWORK,
        "The gradient norm is proportional to 1 / tau_b",
        "The slope of log gradient norm (mean over the evaluations during training) against log tau_b is fitted within "
        f"each of {SEEDS} seeds and tested by exact sign flips, one-sided at 0.025. {LEFT_OUT} So is one with norm 0, "
        f"which has no logarithm. Supported if the slope is above {-1 - NEAR:g} and below {-1 + NEAR:g}; contradicted "
        "if it is below the former or above the latter; otherwise not supported. The norm is that of all parameters, "
        "the output layer's included.",
    )


def _apart(sweeps: Sweeps) -> Verdict:
    own = (
        ("tau_f", "tau_b", AUTOENCODER, PERPLEXITY),
        ("tau_f", "tau_b", AUTOENCODER, SNR),
        ("tau_b", "tau_f", NETWORK, NORM),
        ("tau_b", "tau_f", NETWORK, ACTIVE),
    )
    evidence = Evidence(list(sweeps.values()))
    for mine, other, task, measure in own:
        evidence.smaller(sweeps[other, task], sweeps[mine, task], measure)
        evidence.trend(sweeps[other, task], measure, 1)
    return evidence.verdict(
        "C3 independence",
        "",
        "The two temperatures act largely apart: each leaves the other's quantities alone",
        "On the autoencoder and the binary network. Each quantity (perplexity and signal-to-noise ratio for tau_f, "
        "gradient norm and active neurons for tau_b) has a range, highest less lowest over the sweep, within each of "
        f"{SEEDS} seeds: under its own temperature, and under the other on the same task. Norm and ratio are taken in "
        f"logarithms. {LEFT_OUT} So is one whose norm or ratio has no finite logarithm. Supported if all four ranges "
        f"under the other temperature are below {LARGELY:g} of those under their own (exact sign flips, one-sided at "
        "0.025); contradicted if one is above; otherwise not supported. The cross trends are shown too, as "
        "Spearman's rho, which tells direction and not size.",
    )
