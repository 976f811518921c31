"""A step of training a neural network on many accelerators."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tailback.errors import InvalidValueError, ScenarioError
from tailback.scenario.model import NcclSection
from tailback.scenario.quantities import SizeBytes, TimePs
from tailback.traffic.nccl.choice import MAX_CHANNELS
from tailback.traffic.nccl.steps import COMPUTE_ONLY, Collective, GpuProgram, compile_gpu
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.halo import MAX_RANKS
from tailback.traffic.patterns.pattern import PATTERNS, Pattern
from tailback.traffic.program import Program


@PATTERNS.register("training")
class Training(Pattern):
    """A training step with data, tensor, pipeline and expert parallelism, by NCCL's collectives.

    Ranks are numbered as Megatron-LM does: tensor fastest, then data, then pipeline. The pipeline
    runs one forward, one backward (1F1B; Narayanan et al., SC 2021). Every layer has two
    all-reduces of its activations within the tensor group, forward and backward (Shoeybi et al.,
    2019), and with experts two all-to-alls in each direction. Gradients are all-reduced layer by
    layer in the last backward pass, overlapping the computation of the layer before.
    """

    data: int = Field(default=1, ge=1, le=MAX_RANKS, description="copies of the model")
    tensor: int = Field(default=1, ge=1, le=MAX_RANKS, description="ranks that share each layer")
    pipeline: int = Field(default=1, ge=1, le=MAX_RANKS, description="stages of layers")
    expert: int = Field(default=1, ge=1, description="ranks that share the experts; divides data")
    layers: int = Field(default=1, ge=1, le=1 << 20, description="a multiple of pipeline")
    microbatches: int = Field(default=1, ge=1, le=1 << 20)
    activation: SizeBytes = Field(description="activations of a microbatch between two layers")
    gradient: SizeBytes = Field(description="gradients of a layer, of one rank")
    compute: TimePs = Field(description="forward pass of a layer and microbatch; backward: twice")
    steps: int = Field(default=1, ge=1, le=1 << 20)
    algorithm: Literal["ring", "tree"] | None = None
    protocol: Literal["simple", "ll", "ll128"] | None = None
    channels: int | None = Field(default=None, ge=1, le=MAX_CHANNELS)

    @model_validator(mode="after")
    def _divides(self) -> Training:
        if self.layers % self.pipeline:
            raise InvalidValueError(
                f"layers = {self.layers} is not a multiple of pipeline = {self.pipeline}",
                "give each stage as many layers",
            )
        if self.data % self.expert:
            raise InvalidValueError(
                f"data = {self.data} is not a multiple of expert = {self.expert}",
                "experts are shared within the data-parallel ranks",
            )
        return self

    def own_ranks(self) -> int:
        """The product of the three degrees; experts share the ranks of ``data``."""
        return self.data * self.tensor * self.pipeline

    def repetitions(self) -> int:
        """The ``steps`` option."""
        return self.steps

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        chosen = NcclSection(
            algorithm=self.algorithm, protocol=self.protocol, channels=self.channels
        )
        return compile_gpu(self.activity(n_ranks), chosen)

    def activity(self, n_ranks: int) -> GpuProgram:
        """Collectives and computation of the accelerators; raises ScenarioError for too many."""
        passes = self.steps * self.microbatches * self.layers // self.pipeline
        refuse_if_huge(n_ranks * passes * 8)
        step = _Step(self, n_ranks)
        for _ in range(self.steps):
            for stage in range(self.pipeline):
                step.run(stage)
            step.turn += 1
        name = f"training d{self.data} t{self.tensor} p{self.pipeline} e{self.expert}"
        return GpuProgram(
            name,
            range(n_ranks),
            step.collectives,
            step.timeline,
            error=ScenarioError,
            assumes_hosts=True,
        )


class _Step:
    """Builds the timelines of all ranks, stage by stage."""

    def __init__(self, options: Training, n_ranks: int) -> None:
        self.options = options
        self.collectives: list[Collective] = []
        self.timeline: list[list[tuple[int, int]]] = [[] for _ in range(n_ranks)]
        self.turn = 0
        self._exchanges: dict[tuple[int, str, int, int], int] = {}

    def run(self, stage: int) -> None:
        """One forward and one backward pass of each microbatch, 1F1B."""
        number, warm = self.options.microbatches, self._warmup_passes(stage)
        for k in range(warm):
            self._forward(stage, k)
        for k in range(number - warm):
            self._forward(stage, warm + k)
            self._backward(stage, k)
        for k in range(number - warm, number):
            self._backward(stage, k)

    def _warmup_passes(self, stage: int) -> int:
        """Forward passes of a stage before its first backward pass."""
        return min(self.options.pipeline - stage - 1, self.options.microbatches)

    def _forward(self, stage: int, k: int) -> None:
        """Forward pass of microbatch ``k``, including its receive and send of activations."""
        o = self.options
        if stage and k < self._warmup_passes(stage - 1):
            self._between(stage - 1, "forward", k, stage)
        for _ in range(o.layers // o.pipeline):
            self._layer(stage, o.compute)
        if stage < o.pipeline - 1:
            warm = self._warmup_passes(stage)
            if k < warm:
                self._between(stage, "forward", k, stage)
            else:
                self._between(stage, "both", k - warm, stage)

    def _backward(self, stage: int, k: int) -> None:
        """Backward pass of microbatch ``k``; the last one with the sums of gradients."""
        o = self.options
        last = k == o.microbatches - 1
        if stage < o.pipeline - 1 and k >= o.microbatches - self._warmup_passes(stage):
            self._between(stage, "backward", k, stage)
        for layer in range(o.layers // o.pipeline):
            self._layer(stage, 2 * o.compute, gradients=last and layer > 0)
        if stage:
            meets = k < o.microbatches - self._warmup_passes(stage - 1)
            self._between(stage - 1, "both" if meets else "backward", k, stage)
        if last:
            self._gradients(stage, 0)

    def _between(self, lower: int, direction: str, k: int, stage: int) -> None:
        """Add the messages between two neighbouring stages to the timelines of ``stage``.

        Activations and their gradients are divided among the tensor group.
        """
        o = self.options
        first = self._exchanges.get((lower, direction, k, self.turn))
        if first is None:
            first = len(self.collectives)
            self._exchanges[lower, direction, k, self.turn] = first
            call = "Exchange" if direction == "both" else "SendRecv"
            root = int(direction == "backward")
            for low, high in zip(self._ranks(lower), self._ranks(lower + 1), strict=True):
                self.collectives.append(
                    Collective(
                        call,
                        (low, high),
                        -(-o.activation // o.tensor),
                        "pipeline",
                        "pipeline",
                        root=root,
                        peer=1 - root,
                    )
                )
        for number, rank in enumerate(self._ranks(stage)):
            self.timeline[rank].append((first + number, 0))

    def _layer(self, stage: int, compute: int, *, gradients: bool = False) -> None:
        """Attention and the perceptron (or the experts), each half of the computation."""
        if gradients:
            self._gradients(stage, compute // 2)
        else:
            self._alone(stage, compute // 2)
        self._tensor(stage)
        self._experts(stage)
        self._alone(stage, compute - compute // 2)
        self._experts(stage)
        self._tensor(stage)

    def _rank(self, tensor: int, data: int, stage: int) -> int:
        return tensor + self.options.tensor * (data + self.options.data * stage)

    def _alone(self, stage: int, ps: int) -> None:
        for rank in self._ranks(stage):
            self.timeline[rank].append((COMPUTE_ONLY, ps))

    def _ranks(self, stage: int) -> range:
        width = self.options.tensor * self.options.data
        return range(stage * width, (stage + 1) * width)

    def _tensor(self, stage: int) -> None:
        o = self.options
        groups = [[self._rank(t, d, stage) for t in range(o.tensor)] for d in range(o.data)]
        self._add("AllReduce", groups, o.activation, "tensor")

    def _experts(self, stage: int) -> None:
        o = self.options
        groups = [
            [self._rank(t, first + k, stage) for k in range(o.expert)]
            for t in range(o.tensor)
            for first in range(0, o.data, o.expert)
        ]
        self._add("AllToAll", groups, o.activation, "expert")

    def _gradients(self, stage: int, overlapped: int) -> None:
        o = self.options
        groups = [[self._rank(t, d, stage) for d in range(o.data)] for t in range(o.tensor)]
        if o.data == 1:
            self._alone(stage, overlapped)
        self._add("AllReduce", groups, o.gradient, "data", overlapped)

    def _add(
        self, call: str, groups: list[list[int]], nbytes: int, phase: str, overlapped: int = 0
    ) -> None:
        """A collective of each group."""
        if len(groups[0]) < 2:
            return
        for group in groups:
            for rank in group:
                self.timeline[rank].append((len(self.collectives), overlapped))
            self.collectives.append(Collective(call, tuple(group), nbytes, phase, phase))
