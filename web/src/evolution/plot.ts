// The graph: time runs downwards; one circle per feature, its radius by the square root of its extent.

import type { Renderer } from "../renderer";
import { INK, MUTED } from "../renderer";
import type { Drawing } from "../surface";
import { pointer, Surface } from "../surface";
import type { Graph } from "./data";

const LEFT = 86;
const TOP = 14;
const BOTTOM = 12;
const EDGE = "#9aa3ad";
const SELECTED = "#0b57d0";
const NOW = "#e8f0fe";

export interface Choice {
  feature: number;
  step: number;
}

export class GraphPlot implements Drawing {
  readonly surface: Surface;
  private choice: Choice = { feature: -1, step: 0 };
  private width = 0;

  constructor(
    private readonly graph: Graph,
    private readonly canvas: HTMLCanvasElement,
    private readonly choose: (choice: Choice) => void,
    private readonly hover: (feature: number) => void,
  ) {
    this.surface = new Surface(canvas, this);
    this.connect();
  }

  show(choice: Choice): void {
    this.choice = choice;
    this.surface.refresh();
  }

  height(width: number): number {
    this.width = width;
    return TOP + this.graph.payload.times.length * this.pitch() + BOTTOM;
  }

  /** Whether the circles of a step fit side by side in a width. */
  legible(width: number): boolean {
    return (width - LEFT - 20) / this.graph.columns >= 7;
  }

  /** Height of one step: large for an hour of one-minute steps, small for a day. */
  private pitch(): number {
    const steps = Math.max(this.graph.payload.times.length, 1);
    return Math.max(Math.min(Math.floor(560 / steps), 30), 9);
  }

  private at(feature: number): [number, number, number] {
    const { graph } = this;
    const gap = Math.min((this.width - LEFT - 20) / graph.columns, 46);
    const x = LEFT + ((graph.column[feature] ?? 0) + 0.5) * gap;
    const y = TOP + ((graph.step[feature] ?? 0) + 0.5) * this.pitch();
    const widest = Math.max(Math.min(gap, this.pitch()) * 0.62, 3);
    const radius = Math.min(1.6 + 1.15 * Math.sqrt(graph.extent[feature] ?? 1), widest);
    return [x, y, radius];
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    const { graph } = this;
    const pitch = this.pitch();
    const steps = graph.payload.times.length;
    const every = Math.max(1, Math.ceil(16 / pitch));
    for (let step = 0; step < steps; step += every) {
      const y = TOP + (step + 0.5) * pitch;
      renderer.text(graph.time(step), LEFT - 12, y, { size: 11, align: "end", colour: MUTED });
    }
    const lines: number[] = [];
    graph.source.forEach((source, edge) => {
      const [x0, y0] = this.at(source);
      const [x1, y1] = this.at(graph.target[edge] ?? 0);
      lines.push(x0, y0, x1, y1);
    });
    renderer.lines(lines, EDGE, 1);
    for (let feature = 0; feature < graph.count; feature++) {
      const [x, y, radius] = this.at(feature);
      renderer.circles([x, y], radius, graph.colour(graph.maximum[feature] ?? 0), INK);
    }
  }

  overlay(renderer: Renderer): void {
    const { graph, choice } = this;
    const y = TOP + choice.step * this.pitch();
    renderer.rects([LEFT - 8, y, 4, this.pitch()], SELECTED);
    renderer.frame(LEFT - 4, y, this.width - LEFT, this.pitch(), NOW, 1);
    if (choice.feature < 0) return;
    const lines: number[] = [];
    const [x, own] = this.at(choice.feature);
    const near = [
      ...(graph.before[choice.feature] ?? []),
      ...(graph.after[choice.feature] ?? []),
    ];
    for (const other of near) lines.push(x, own, ...this.at(other).slice(0, 2));
    renderer.lines(lines, SELECTED, 2);
    const [, , radius] = this.at(choice.feature);
    const fill = graph.colour(graph.maximum[choice.feature] ?? 0);
    renderer.circles([x, own], radius + 2.5, SELECTED, SELECTED);
    renderer.circles([x, own], radius, fill, INK);
  }

  private hit(px: number, py: number): number {
    const step = Math.floor((py - TOP) / this.pitch());
    let best = -1;
    let least = 14;
    for (const feature of this.graph.byStep[step] ?? []) {
      const far = Math.abs(this.at(feature)[0] - px);
      if (far < least) [best, least] = [feature, far];
    }
    return best;
  }

  private connect(): void {
    const { canvas, graph } = this;
    canvas.addEventListener("pointermove", (event) => {
      this.hover(this.hit(...pointer(event, canvas)));
    });
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("click", (event) => {
      const [x, y] = pointer(event, canvas);
      const feature = this.hit(x, y);
      const last = graph.payload.times.length - 1;
      const step = Math.min(Math.max(Math.floor((y - TOP) / this.pitch()), 0), last);
      this.choose({ feature, step: feature < 0 ? step : (graph.step[feature] ?? 0) });
    });
    canvas.addEventListener("keydown", (event) => {
      const next = this.next(event.key);
      if (next === undefined) return;
      event.preventDefault();
      this.choose({ feature: next, step: graph.step[next] ?? this.choice.step });
    });
  }

  /** The feature an arrow key moves to: up and down along the evolution, left and right in the step. */
  private next(key: string): number | undefined {
    const { graph } = this;
    const here = this.choice.feature;
    if (key === "Escape") return -1;
    if (!key.startsWith("Arrow") || graph.count === 0) return undefined;
    if (here < 0) return 0;
    if (key === "ArrowUp") return graph.before[here]?.[0] ?? here;
    if (key === "ArrowDown") return graph.after[here]?.[0] ?? here;
    const row = graph.byStep[graph.step[here] ?? 0] ?? [];
    const moved = row.indexOf(here) + (key === "ArrowRight" ? 1 : -1);
    return row[moved] ?? here;
  }
}
