"""Would another reading of what the paper leaves open have changed a verdict? Beside the claims, never instead."""

from studies.paper.readings.questions import ask, begun, lacking

__all__ = ["ask", "begun", "lacking"]
