// Horizontal bars with whiskers: times of runs, or what changed from one value to another.

import { AXIS_HEIGHT, bottomAxis, linear, ticksOf, timeText, timeUnit } from "./axis";
import type { Bar, BarsMeta } from "./data";
import type { Item } from "./items";
import { ItemPlot } from "./items";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, textWidth, wrapped } from "./renderer";

const PITCH = 23;
const TALL = 16;
const TOP = 6;

export class Bars extends ItemPlot {
  constructor(
    canvas: HTMLCanvasElement,
    private readonly meta: BarsMeta,
    /** Whether a bar is a change: a tick where it begins and a dot where it ends. */
    private readonly change: boolean,
  ) {
    super(canvas);
  }

  private get bottom(): number {
    return TOP + this.meta.rows.length * PITCH;
  }

  height(width: number): number {
    return this.bottom + AXIS_HEIGHT + 16 * wrapped(this.meta.note, 11, width).length;
  }

  private say(value: number): string {
    return this.meta.unit === "ps" ? timeText(value) : `${Math.round(value)}`;
  }

  protected paint(renderer: Renderer, width: number): Item[] {
    const { rows, line, unit, axis, note } = this.meta;
    const names = Math.min(Math.max(...rows.map((row) => textWidth(row.name, 12))), 0.42 * width) + 10;
    const texts = Math.max(...rows.map((row) => textWidth(row.text, 12))) + 14;
    const end = Math.max(...rows.flatMap((row) => [row.from, row.to, row.high ?? 0]), 1e-9);
    const plotWidth = Math.max(width - names - Math.min(texts, 0.45 * width), 40);
    const x = linear([0, end], [names, names + plotWidth]);
    const [word, size] = unit === "ps" ? timeUnit(end) : ["", 1] as const;
    bottomAxis(renderer, x, ticksOf(x, size), this.bottom, word ? `${axis}, ${word}` : axis, TOP);
    if (line !== null) renderer.lines([x(line), TOP, x(line), this.bottom], MUTED, 1);
    const items = rows.map((row, i) => this.row(renderer, row, i, x, names, width));
    wrapped(note, 11, width).forEach((text, i) => {
      renderer.text(text, 0, this.bottom + AXIS_HEIGHT + 8 + 16 * i, { size: 11, colour: MUTED });
    });
    return items;
  }

  private row(
    renderer: Renderer, row: Bar, i: number, x: (value: number) => number, names: number, width: number,
  ): Item {
    const top = TOP + i * PITCH + (PITCH - TALL) / 2;
    const middle = top + TALL / 2;
    const [left, right] = [x(Math.min(row.from, row.to)), x(Math.max(row.from, row.to))];
    const box: [number, number, number, number] = [left, top, Math.max(right - left, 1), TALL];
    renderer.rects(box, row.colour);
    let beside = right;
    if (row.low !== null && row.high !== null) {
      const [a, b] = [x(row.low), x(row.high)];
      renderer.lines([a, middle, b, middle, a, middle - 4, a, middle + 4, b, middle - 4, b, middle + 4], INK, 1.2);
      beside = Math.max(right, b);
    }
    if (this.change) {
      renderer.lines([x(row.from), top - 2, x(row.from), top + TALL + 2], MUTED, 1.6);
      renderer.circles([x(row.to), middle], 3.5, INK, "#fff");
    }
    renderer.text(fitted(row.name, 12, names - 10), names - 8, middle, { align: "end" });
    const text = fitted(row.text, 12, width - beside - 8);
    // The reference line must not cross the labels.
    renderer.rects([beside + 5, top, textWidth(text, 12) + 4, TALL], "#fff");
    renderer.text(text, beside + 7, middle, {});
    const range = row.low === null || row.high === null ? []
      : [`${this.meta.range}: ${this.say(row.low)} – ${this.say(row.high)}`];
    const said = this.change ? `${this.say(row.from)} → ${this.say(row.to)} (${row.text})` : row.text;
    return { box, facts: [row.name, said, ...range] };
  }
}
