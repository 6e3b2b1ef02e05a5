"""No question at all: a page for whatever a store holds."""

from dst_lab.report import Study
from dst_lab.report.sections import OTHERS, REST, answer, temperature_map

ANY = Study(
    name="any",
    title="Runs of a store",
    topic="Runs of a store",
    lead="Every task that is recorded here: the best settings, maps over temperatures, curves, what mattered, and all "
    "runs, without a claim.",
    sections=(answer(), temperature_map(), OTHERS, *REST),
)
