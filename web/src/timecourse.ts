// Delivered bytes over time, and the congested fraction by tier and direction.

import { AXIS_HEIGHT, bottomAxis, leftAxis, linear, ticksOf, timeText, timeUnit } from "./axis";
import type { CourseMeta, Model, Numbers, TierMeta } from "./data";
import { frameAt, timeOf } from "./data";
import type { Renderer } from "./renderer";
import { fitted, INK, SELECTED } from "./renderer";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";

// The same as in the rank and link timelines, so that all line up.
const LEFT = 150;
const RIGHT = 14;
const TOP = 26;
const ARRIVED = 70;
const GAP = 34;
const TALL = 170;
const LINE = 17;
const COLOURS = ["#5d6875", "#c2571a", "#2c5c9e", "#7a5ea8", "#2f7f86"];
const DASHES: Record<string, number[]> = { up: [], down: [6, 2.5], flat: [2, 2] };

export class TimeCourse implements Drawing {
  readonly surface: Surface;
  private width = 0;
  private at: number | null = null;
  private readonly tip: Tip;

  constructor(
    private readonly model: Model,
    private readonly store: Store,
    canvas: HTMLCanvasElement,
  ) {
    this.surface = new Surface(canvas, this);
    this.tip = new Tip(canvas, (x) => {
      const frame = this.frameAt(x);
      this.store.point(frame);
      return frame === null ? null : this.facts(frame);
    });
    canvas.addEventListener("pointerleave", () => this.store.point(null));
    let from: number | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      from = this.frameAt(pointer(event, canvas)[0]);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const to = this.frameAt(pointer(event, canvas)[0]);
      if (from === null || to === null || (to === from && !this.store.now.time)) return;
      this.store.set({ time: [Math.min(from, to), Math.max(from, to) + 1] });
    });
    canvas.addEventListener("pointerup", () => (from = null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    store.listen((_, changed) => {
      if (onlyMarks(changed) || !changed.has("dataset")) this.surface.refresh();
      else this.surface.redraw();
    });
    store.listenPoint(() => this.surface.refresh());
  }

  /** The selected run's; for a difference, the first run's. */
  private get course(): CourseMeta {
    return this.model.run(this.model.runsOf(this.store.now.dataset)[0] ?? 0).course;
  }

  private get tiers(): TierMeta[] {
    return this.course.sums.tiers;
  }

  private get bottom(): number {
    return TOP + ARRIVED + GAP + TALL;
  }

  height(): number {
    return this.bottom + AXIS_HEIGHT + LINE * this.tiers.length + 4;
  }

  private x(frame: number): number {
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    const room = this.width - LEFT - RIGHT;
    return LEFT + (((edges[frame] ?? end) - start) / Math.max(end - start, 1)) * room;
  }

  private frameAt(px: number): number | null {
    if (px < LEFT || px > this.width - RIGHT) return null;
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    return frameAt(this.course, start + ((px - LEFT) / (this.width - LEFT - RIGHT)) * (end - start));
  }

  /** Bytes per second that arrived in a frame. */
  private rate(frame: number): number {
    const { edges_ps: edges, sums } = this.course;
    const seconds = ((edges[frame + 1] ?? 0) - (edges[frame] ?? 0)) / 1e12;
    return seconds > 0 ? (this.model.arrays.get(sums.bytes)[frame] ?? 0) / seconds : 0;
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    const { edges_ps: edges, frames } = this.course;
    const rates = Array.from({ length: frames }, (_, frame) => this.rate(frame));
    const most = Math.max(...rates, 1);
    const [unit, size] = most >= 2e12 ? ["TB/s", 1e12] : most >= 2e9 ? ["GB/s", 1e9] : ["MB/s", 1e6] as const;
    const y = linear([0, most / size], [TOP + ARRIVED, TOP]).nice(3);
    const right = this.x(frames);
    leftAxis(renderer, y, LEFT, right, `delivered (arrival), ${unit}`, 3);
    const boxes = rates.flatMap((rate, frame) => [
      this.x(frame), y(rate / size), this.x(frame + 1) - this.x(frame) + 0.3, y(0) - y(rate / size),
    ]);
    renderer.rects(boxes, "#9fb3c8");
    const met = linear([0, 1], [this.bottom, this.bottom - TALL]);
    // For a difference the first run is drawn: label it, so that it is not mistaken for the difference.
    const runs = this.model.runsOf(this.store.now.dataset);
    const whose = runs.length > 1 ? `, ${this.model.run(runs[0] ?? 0).label}` : "";
    leftAxis(renderer, met, LEFT, right, `congested fraction (0–1)${whose}`);
    for (const tier of this.tiers) this.drawTier(renderer, tier, met);
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    const time = linear([start, end], [LEFT, right]);
    const [word, ps] = timeUnit(end);
    const name = this.model.payload.ranks ? "expected time" : "time";
    bottomAxis(renderer, time, ticksOf(time, ps), this.bottom, `${name}, ${word}: ${timeOf(this.course)}`);
    this.tiers.forEach((tier, i) => {
      const at = this.bottom + AXIS_HEIGHT + LINE * i + 8;
      renderer.lines([LEFT, at, LEFT + 26, at], this.colour(tier), 2, DASHES[tier.direction]);
      renderer.text(fitted(tier.name, 11, width - LEFT - 40), LEFT + 33, at, { size: 11 });
    });
  }

  private colour(tier: TierMeta): string {
    return COLOURS[tier.tier % COLOURS.length] ?? INK;
  }

  private get(tier: TierMeta, part: "value" | "low" | "high" | "samples"): Numbers {
    return this.model.arrays.get(tier[part]);
  }

  /** Value of a tier in a frame, NaN with too few samples to tell. */
  private value(tier: TierMeta, frame: number): number {
    const value = this.get(tier, "value")[frame] ?? NaN;
    return (this.get(tier, "samples")[frame] ?? 0) >= 10 ? value : NaN;
  }

  private drawTier(renderer: Renderer, tier: TierMeta, y: (value: number) => number): void {
    const lines: number[] = [];
    const bands: number[] = [];
    const [low, high] = [this.get(tier, "low"), this.get(tier, "high")];
    for (let frame = 0; frame < this.course.frames; frame++) {
      const value = this.value(tier, frame);
      if (Number.isNaN(value)) continue;
      const [from, to] = [this.x(frame), this.x(frame + 1)];
      lines.push(from, y(value), to, y(value));
      const next = frame + 1 < this.course.frames ? this.value(tier, frame + 1) : NaN;
      if (!Number.isNaN(next)) lines.push(to, y(value), to, y(next));
      bands.push(from, y(high[frame] ?? 1), to - from, y(low[frame] ?? 0) - y(high[frame] ?? 1));
    }
    renderer.rects(bands, `${this.colour(tier)}22`);
    renderer.lines(lines, this.colour(tier), 1.5, DASHES[tier.direction]);
  }

  overlay(renderer: Renderer): void {
    const { time } = this.store.now;
    if (time && this.store.now.dataset !== this.model.changeIndex) {
      const [from, to] = [this.x(time[0]), this.x(time[1])];
      const veil = "rgba(255,255,255,0.72)";
      renderer.rects([LEFT, TOP, from - LEFT, this.bottom - TOP], veil);
      renderer.rects([to, TOP, this.x(this.course.frames) - to, this.bottom - TOP], veil);
      renderer.frame(from, TOP, to - from, this.bottom - TOP, SELECTED, 1.5);
    }
    const at = this.store.pointed ?? this.at;
    if (at === null || at >= this.course.frames) return;
    const x = (this.x(at) + this.x(at + 1)) / 2;
    renderer.lines([x, TOP, x, this.bottom], SELECTED, 1, [4, 3]);
  }

  /** A frame as text. */
  facts(frame: number): string[] {
    const { edges_ps: edges } = this.course;
    const span = `${timeText(edges[frame] ?? 0)} – ${timeText(edges[frame + 1] ?? 0)}`;
    const per = (value: number): string => (100 * value).toFixed(1);
    const tiers = this.tiers.map((tier) => {
      const value = this.value(tier, frame);
      const samples = this.get(tier, "samples")[frame] ?? 0;
      const [low, high] = [this.get(tier, "low")[frame] ?? NaN, this.get(tier, "high")[frame] ?? NaN];
      if (Number.isNaN(value)) return `${tier.name}: ${samples ? "too few samples" : "no samples"} (${samples})`;
      if (value === 0) return `${tier.name}: ≤ ${per(high)} % (95 %), none of ${samples} samples`;
      return `${tier.name}: ${per(value)} % (95 %: ${per(low)} to ${per(high)} %), ${samples} samples`;
    });
    return [span, `arrived ${(this.rate(frame) / 1e9).toPrecision(3)} GB/s`, ...tiers];
  }

  private key(event: KeyboardEvent): void {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (event.key === "Escape") this.store.set({ time: null });
    if (!by) return;
    event.preventDefault();
    const next = Math.min(Math.max((this.at ?? -by) + by, 0), this.course.frames - 1);
    this.at = Math.max(next, 0);
    this.tip.show(this.facts(this.at), this.x(this.at), TOP + ARRIVED);
    this.store.point(this.at);
    this.surface.refresh();
  }
}
