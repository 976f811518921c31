// Delivered bytes over time, and the congested fraction by tier and direction.

import type { Scale } from "./axis";
import { AXIS_HEIGHT, bottomAxis, leftAxis, linear, ticksOf, timeText, timeUnit } from "./axis";
import type { CourseMeta, Model, Numbers, TierMeta } from "./data";
import { extrapolated, frameAt, timeOf } from "./data";
import type { Estimate } from "./interval";
import { ofDifference } from "./interval";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, SELECTED, textWidth } from "./renderer";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";

// The same as in the rank and link timelines, so that all line up.
const LEFT = 150;
const RIGHT = 14;
const TOP = 26;
const ARRIVED = 44;
const GAP = 34;
const TALL = 64;
const LINE = 17;
/** Hop samples of a window below which no fraction is drawn. */
const MIN_SAMPLES = 10;
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

  /** Both runs of a difference, else the selected one. */
  private get courses(): CourseMeta[] {
    return this.model.runsOf(this.store.now.dataset).map((run) => this.model.run(run).course);
  }

  private get change(): boolean {
    return this.store.now.dataset === this.model.changeIndex;
  }

  private get tiers(): TierMeta[] {
    return this.course.sums.tiers;
  }

  private get bottom(): number {
    return TOP + ARRIVED + GAP + TALL;
  }

  height(width: number): number {
    const last = this.legendSpots(width)[this.tiers.length - 1]?.[1] ?? 0;
    return this.bottom + AXIS_HEIGHT + last + LINE + 4;
  }

  /** Where each tier stands in the legend: beside the one before it where there is room. */
  private legendSpots(width: number): [number, number][] {
    let [x, y] = [LEFT, 0];
    return this.tiers.map(({ name }) => {
      const wide = 33 + textWidth(name, 11) + 24;
      if (x > LEFT && x + wide > width) [x, y] = [LEFT, y + LINE];
      const spot: [number, number] = [x, y];
      x += wide;
      return spot;
    });
  }

  private x(frame: number): number {
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    const room = this.width - LEFT - RIGHT;
    // Runs differ in length: a difference is shown at equal shares of both.
    if (this.change) return LEFT + (frame / frames) * room;
    return LEFT + (((edges[frame] ?? end) - start) / Math.max(end - start, 1)) * room;
  }

  private frameAt(px: number): number | null {
    if (px < LEFT || px > this.width - RIGHT) return null;
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    const share = (px - LEFT) / (this.width - LEFT - RIGHT);
    if (this.change) return Math.min(Math.floor(share * frames), frames - 1);
    return frameAt(this.course, start + share * (end - start));
  }

  /** Bytes per second that arrived in a frame. */
  private rate({ edges_ps: edges, sums }: CourseMeta, frame: number): number {
    const seconds = ((edges[frame + 1] ?? 0) - (edges[frame] ?? 0)) / 1e12;
    return seconds > 0 ? (this.model.arrays.get(sums.bytes)[frame] ?? 0) / seconds : 0;
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    const { edges_ps: edges, frames } = this.course;
    const right = this.x(frames);
    this.drawDelivered(renderer, right);
    const met = this.fractions;
    const words = this.change ? "change of the congested fraction (−1 to 1)" : "congested fraction (0–1)";
    leftAxis(renderer, met, LEFT, right, words, 3);
    if (this.change) renderer.lines([LEFT, met(0), right, met(0)], MUTED, 1);
    for (const tier of this.tiers) this.drawTier(renderer, tier, met);
    if (this.change) {
      const share = linear([0, 100], [LEFT, right]);
      bottomAxis(renderer, share, ticksOf(share), this.bottom, `time, % of each run: ${timeOf(this.course)}`);
    } else {
      const time = linear([edges[0] ?? 0, edges[frames] ?? 1], [LEFT, right]);
      const [word, ps] = timeUnit(edges[frames] ?? 1);
      const name = this.model.payload.ranks ? "expected time" : "time";
      bottomAxis(renderer, time, ticksOf(time, ps), this.bottom, `${name}, ${word}: ${timeOf(this.course)}`);
    }
    const spots = this.legendSpots(width);
    this.tiers.forEach((tier, i) => {
      const [x, down] = spots[i] ?? [LEFT, 0];
      const at = this.bottom + AXIS_HEIGHT + down + 8;
      renderer.lines([x, at, x + 26, at], this.colour(tier), 2, DASHES[tier.direction]);
      renderer.text(fitted(tier.name, 11, width - x - 40), x + 33, at, { size: 11 });
    });
  }

  private get fractions(): Scale {
    return linear(this.change ? [-1, 1] : [0, 1], [this.bottom, this.bottom - TALL]);
  }

  /** Delivered bytes as columns; of the second of two runs as a line. */
  private drawDelivered(renderer: Renderer, right: number): void {
    const { frames } = this.course;
    const rates = this.courses.map((course) => Array.from({ length: frames }, (_, frame) => this.rate(course, frame)));
    const most = Math.max(...rates.flat(), 1);
    const [unit, size] = most >= 2e12 ? ["TB/s", 1e12] : most >= 2e9 ? ["GB/s", 1e9] : ["MB/s", 1e6] as const;
    const y = linear([0, most / size], [TOP + ARRIVED, TOP]).nice(3);
    const labels = this.model.runsOf(this.store.now.dataset).map((run) => this.model.run(run).label);
    const whose = this.change ? `; columns: ${labels[0]}, line: ${labels[1]}` : "";
    leftAxis(renderer, y, LEFT, right, fitted(`delivered (arrival), ${unit}${whose}`, 11.5, right), 3);
    const [first = [], second] = rates;
    renderer.rects(first.flatMap((rate, frame) => [
      this.x(frame), y(rate / size), this.x(frame + 1) - this.x(frame) + 0.3, y(0) - y(rate / size),
    ]), "#9fb3c8");
    const line = second?.flatMap((rate, frame) => {
      const [from, to, at] = [this.x(frame), this.x(frame + 1), y(rate / size)];
      return [from, at, to, at, ...(frame + 1 < frames ? [to, at, to, y((second[frame + 1] ?? 0) / size)] : [])];
    });
    if (line) renderer.lines(line, INK, 1.2);
  }

  private colour(tier: TierMeta): string {
    return COLOURS[tier.tier % COLOURS.length] ?? INK;
  }

  private get(tier: TierMeta, part: "value" | "low" | "high" | "samples"): Numbers {
    return this.model.arrays.get(tier[part]);
  }

  /** A tier of one run in a frame with its interval; null with too few samples to tell. */
  private single(tier: TierMeta | undefined, frame: number): Estimate | null {
    if (!tier || (this.get(tier, "samples")[frame] ?? 0) < MIN_SAMPLES) return null;
    const value = this.get(tier, "value")[frame] ?? NaN;
    return Number.isNaN(value) ? null
      : [value, this.get(tier, "low")[frame] ?? 0, this.get(tier, "high")[frame] ?? 1];
  }

  /** A tier in the runs that are shown: one, or the two of a difference. */
  private ofRuns(tier: TierMeta): (TierMeta | undefined)[] {
    return this.courses.map(({ sums }) => sums.tiers.find(({ name }) => name === tier.name));
  }

  /** What is drawn of a tier in a frame, with its interval; null with too few samples. */
  private estimate(tier: TierMeta, frame: number): Estimate | null {
    const [one = null, other = null] = this.ofRuns(tier).map((each) => this.single(each, frame));
    if (!this.change) return one;
    return one && other && [other[0] - one[0], ...ofDifference(one, other)];
  }

  private drawTier(renderer: Renderer, tier: TierMeta, y: (value: number) => number): void {
    const lines: number[] = [];
    const bands: number[] = [];
    for (let frame = 0; frame < this.course.frames; frame++) {
      const found = this.estimate(tier, frame);
      if (!found) continue;
      const [value, low, high] = found;
      const [from, to] = [this.x(frame), this.x(frame + 1)];
      lines.push(from, y(value), to, y(value));
      const next = frame + 1 < this.course.frames ? this.estimate(tier, frame + 1) : null;
      if (next) lines.push(to, y(value), to, y(next[0]));
      bands.push(from, y(high), to - from, y(low) - y(high));
    }
    renderer.rects(bands, `${this.colour(tier)}22`);
    renderer.lines(lines, this.colour(tier), 1.5, DASHES[tier.direction]);
  }

  overlay(renderer: Renderer): void {
    const { time } = this.store.now;
    if (time) {
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
    const { edges_ps: edges, frames } = this.course;
    const rates = this.courses.map((course) => (this.rate(course, frame) / 1e9).toPrecision(3));
    const span = this.change
      ? `${((100 * frame) / frames).toFixed(0)} – ${((100 * (frame + 1)) / frames).toFixed(0)} % of each run`
      : `${timeText(edges[frame] ?? 0)} – ${timeText(edges[frame + 1] ?? 0)}`;
    const tiers = this.tiers.map((tier) => `${tier.name}: ${this.told(tier, frame)}`);
    const skipped = this.change ? null : extrapolated(this.course, frame);
    return [span, ...(skipped ? [skipped] : []), `arrived ${rates.join(" → ")} GB/s`, ...tiers];
  }

  /** A tier in a frame as text. */
  private told(tier: TierMeta, frame: number): string {
    const per = (value: number): string => (100 * value).toFixed(1);
    const of = this.ofRuns(tier);
    const samples = of.map((each) => (each ? this.get(each, "samples")[frame] : 0) ?? 0);
    const found = this.estimate(tier, frame);
    if (!found) return `${samples.some(Boolean) ? "too few samples" : "no samples"} (${samples.join(" → ")})`;
    const [value, low, high] = found;
    const ends = `95 %: ${per(low)} to ${per(high)}`;
    if (this.change) {
      const both = of.map((each) => per(this.single(each, frame)?.[0] ?? NaN)).join(" → ");
      return `${both} %, ${per(value)} points (${ends}), ${samples.join(" → ")} samples`;
    }
    if (value === 0) return `≤ ${per(high)} % (95 %), none of ${samples[0]} samples`;
    return `${per(value)} % (${ends} %), ${samples[0]} samples`;
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
