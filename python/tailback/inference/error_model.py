"""Likelihood of the evidence under a hypothesis: an error model for each kind of evidence.

The simulation of a hypothesis predicts the time of the run, the times of calls and sends, the stall
times of ports and the congestion of links. Each kind of evidence has one *misfit*: squared
difference over squared measurement, after the best common factor. Its errors are normal with
unknown variance, of the usual size :data:`MISFIT_ERROR`; integrated over that variance, the
likelihood is Student's (Gelman et al. 2013, section 3.2). It is robust: a kind of evidence that
every hypothesis predicts badly hardly counts.

The logarithm of the time of the run has a normal error (:data:`TIME_ERROR`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.confidence import TIME_ERROR
from tailback.evidence.model import Measured

LOSSY_TIME_ERROR, LOSSY_TIME_RATIO = 0.12, 1.2
"""The same for a lossy network, and its typical ratio of measured to simulated time, of what a run
takes longer than on a network without delay: in the real-packet lab, TCP takes 1.0 to 1.4 times as
long as a model with back-pressure, and runs that only compute take as long as simulated."""

COUNTED_TIME_ERROR, COUNTED_TIME_RATIO = 0.1, 1.1
"""The same where counters show the paths of flows: without those, flows that a hash lets collide
are a part of the ratio. 17 runs in the real-packet lab took 0.87 to 1.31 times as long, 1.08 on
average."""

MISFIT_ERROR: Mapping[str, float] = {
    "calls": 0.003,
    "sends": 0.01,
    "steps": 0.02,
    "spread": 0.003,
    "stalls": 0.02,
    "bytes": 0.01,
    "samples": 0.05,
}
"""Usual misfit of each kind of evidence under the right hypothesis: median over blind cases
(samples: over runs of the telemetry study). Those of bytes and steps are cautious: seven cases had
0.0002 to 0.11 for bytes, and twelve simulated training runs 0 to 0.05 for steps, medians 0.001 and
0.0005. It includes errors of clocks, counter resolution and unknown buffer sizes.
"""

OBSERVATIONS = 9.0
"""Number of independent observations in one kind of evidence. Call sites and ports are many, but
ranks wait for one another, and stalls propagate from port to port, so their errors are not
independent. With 9, the stated confidence in 36 diagnoses of build cases is 0.86 on average, and
0.94 are right; with 6 it is 0.82, and with 12 two right verdicts are lost."""


def nearest_of(places: int) -> float:
    """Misfit of the nearest of many simulations to the truth, over that between any two of them.

    Points drawn at random in a space of as many dimensions as there are independent observations
    (:data:`OBSERVATIONS`): the nearest of N is closer than a random one by N to the power of minus
    one over the dimensions, and a misfit is a squared distance.

    Args:
        places: Number of simulations that differ at random, at least 1.
    """
    return float(max(places, 1) ** (-2.0 / OBSERVATIONS))


@dataclass(frozen=True)
class ErrorModel:
    """The error model of one measured run.

    Attributes:
        measured_ps: Measured time in and between calls, ps.
        errors: Usual misfit of each kind of evidence under the right hypothesis.
        lossy: Whether queues drop packets.
        instant_ps: Time of the run on a network without delay, ps; of a lossy network.
        counted_paths: Whether counters show the paths of flows.
    """

    measured_ps: int
    errors: Mapping[str, float] = field(default_factory=dict)
    lossy: bool = False
    instant_ps: int = 0
    counted_paths: bool = False

    @classmethod
    def of(
        cls,
        measured_ps: int,
        alone: Sequence[Sequence[Outcome]],
        *,
        lossy: bool,
        instant_ps: int = 0,
        counted_paths: bool = False,
    ) -> ErrorModel:
        """The error model for the kinds of evidence that all these simulations predict.

        Counters do not show when within a window other jobs sent. Half the range of the misfit over
        the simulated arrangements therefore adds to its error.

        Args:
            measured_ps: Measured time in and between calls, ps.
            alone: Runs without hidden causes: for each machine, one for each arrangement of counted
                traffic of other jobs.
            lossy: Whether queues drop packets.
            instant_ps: Time of the run on a network without delay, ps.
            counted_paths: Whether counters show the paths of flows.
        """
        errors = {}
        for kind, usual in MISFIT_ERROR.items():
            misfits = [[outcome.misfits.get(kind) for outcome in group] for group in alone]
            valid = [[m for m in group if m is not None] for group in misfits]
            if [len(group) for group in valid] != [len(group) for group in misfits] or not valid:
                continue
            # Of the adapter model that agrees best.
            agreeing = min(valid, key=min)
            errors[kind] = usual + (max(agreeing) - min(agreeing)) / 2.0
        return cls(measured_ps, errors, lossy, instant_ps, counted_paths)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of evidence that are compared."""
        return tuple(self.errors)

    @property
    def charge(self) -> float:
        """Logarithm by which one free parameter must raise the likelihood (Schwarz 1978)."""
        return 0.5 * math.log(1.0 + OBSERVATIONS * len(self.kinds))

    def usual(self, outcome: Outcome) -> dict[str, float]:
        """Usual misfit of each kind of evidence if this simulation is the right one.

        Where the order of messages depends on small delays, as with adapters that send one after
        another, other engine settings change the times of all messages.
        """
        return {
            kind: error + outcome.sensitivity.get(kind, 0.0) for kind, error in self.errors.items()
        }

    def log_shape(self, outcome: Outcome) -> float:
        """Logarithm of the likelihood of all evidence except the time; at most 0.

        A kind of evidence that this simulation does not predict has a misfit of 1.
        """
        total = 0.0
        for kind, usual in self.usual(outcome).items():
            misfit = outcome.misfits.get(kind)
            total += math.log((usual + (1.0 if misfit is None else misfit)) / self.errors[kind])
        return -0.5 * OBSERVATIONS * total

    def log_ratios(self, outcome: Outcome, other: Outcome) -> dict[str, float]:
        """Logarithm of the likelihood of each kind of evidence under a simulation over another's.

        Args:
            outcome: Prediction of the simulation.
            other: Prediction of the other one.

        Returns:
            By kind, and ``time`` for the time of the run.
        """
        logs = [
            {
                kind: math.log(usual + (misfit if misfit is not None else 1.0))
                for kind, usual in self.usual(each).items()
                for misfit in (each.misfits.get(kind),)
            }
            for each in (outcome, other)
        ]
        ratios = {kind: 0.5 * OBSERVATIONS * (logs[1][kind] - logs[0][kind]) for kind in self.kinds}
        return {
            **ratios,
            "time": self.log_time(outcome.elapsed_ps) - self.log_time(other.elapsed_ps),
        }

    def usual_ps(self, elapsed_ps: float) -> float:
        """What runs usually take of which the model lacks nothing, from their simulated time."""
        return float(self.usual_times(np.asarray(elapsed_ps, np.float64)))

    def usual_times(self, elapsed_ps: Floats) -> Floats:
        """The same of several runs, ps."""
        network = np.maximum(elapsed_ps - self.instant_ps, 0.0)
        return np.asarray(elapsed_ps + self._lossy_more * network, np.float64)

    def simulated_ps(self, measured_ps: float) -> float:
        """Simulated time of a run that usually takes so long."""
        network = max(measured_ps - self.instant_ps, 0.0)
        return measured_ps - network * self._lossy_more / (1.0 + self._lossy_more)

    @property
    def _lossy_more(self) -> float:
        if not self.lossy:
            return 0.0
        return (COUNTED_TIME_RATIO if self.counted_paths else LOSSY_TIME_RATIO) - 1.0

    @property
    def time_error(self) -> float:
        """Standard error of the logarithm of the simulated time."""
        if not self.lossy:
            return TIME_ERROR
        network = 1.0 - min(self.instant_ps / max(self.measured_ps, 1), 1.0)
        of_network = COUNTED_TIME_ERROR if self.counted_paths else LOSSY_TIME_ERROR
        return TIME_ERROR + max(of_network - TIME_ERROR, 0.0) * network

    def log_time(self, elapsed_ps: float) -> float:
        """Logarithm of the likelihood of the measured time; at most 0."""
        off = math.log(self.measured_ps / self.usual_ps(max(elapsed_ps, 1.0))) / self.time_error
        return -0.5 * off * off

    def missing_share(self, elapsed_ps: float) -> float:
        """Share of the measured time that a simulation lacks; at least 0."""
        return max(1.0 - self.usual_ps(elapsed_ps) / self.measured_ps, 0.0)

    def off_share(self, elapsed_ps: float) -> float:
        """Difference between a simulation and the run, as a share of the measured time.

        A simulation that takes longer than the run describes it as badly as one that lacks time.
        """
        return abs(1.0 - self.usual_ps(elapsed_ps) / self.measured_ps)

    def agrees(self, outcome: Outcome) -> bool:
        """Whether all evidence agrees as well as usual, even if the engine settings are right."""
        usual = replace(outcome, misfits=self.errors, sensitivity={})
        return self.log_shape(replace(outcome, sensitivity={})) >= self.log_shape(usual)


def error_model(measured: Measured, *, lossy: bool) -> ErrorModel:
    """The error model of the time of a measured run, and of no other evidence.

    Args:
        measured: The measured run.
        lossy: Whether queues drop packets.
    """
    inside_ps = max(measured.elapsed_ps - measured.outside_model_ps, 1)
    return ErrorModel(
        inside_ps,
        lossy=lossy,
        instant_ps=measured.instant_ps,
        counted_paths=measured.counted_paths,
    )
