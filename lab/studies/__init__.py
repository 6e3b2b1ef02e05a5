"""One folder per question: its recipes, its rules, its figures, and what its page says."""

from dst_lab.report.known import register

from studies.circuits import CIRCUITS
from studies.codebooks import CODEBOOKS
from studies.convolutional import CONVOLUTIONAL
from studies.diffusion import DIFFUSION
from studies.estimators import ESTIMATORS
from studies.paper import PAPER
from studies.temperatures import TEMPERATURES

for _study in (PAPER, ESTIMATORS, TEMPERATURES, CIRCUITS, CODEBOOKS, CONVOLUTIONAL, DIFFUSION):
    register(_study)
