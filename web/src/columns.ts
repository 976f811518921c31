// Column charts and histograms, stacked or side by side, with the curve expected by chance.

import { AXIS_HEIGHT, leftAxis, linear, TICK_SIZE } from "./axis";
import type { ColumnsMeta } from "./data";
import type { Item } from "./items";
import { ItemPlot } from "./items";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, textWidth, wrapped } from "./renderer";

const LEFT = 52;
const RIGHT = 8;
const TALL = 104;
const LINE = 16;
/** Extent of an axis below which all values count as 0: shares in per cent, or links. */
const SMALLEST = 1e-3;

export class Columns extends ItemPlot {
  constructor(canvas: HTMLCanvasElement, private readonly meta: ColumnsMeta) {
    super(canvas);
  }

  private head(width: number): string[] {
    return wrapped(this.meta.title, 12, width);
  }

  /** Names of the series and of the curve, one below another. */
  private get names(): { name: string; colour: string }[] {
    const { series, curve } = this.meta;
    const shown = series.length > 1 || curve ? series : [];
    return [...shown, ...(curve ? [{ name: curve.name, colour: INK }] : [])];
  }

  private top(width: number): number {
    return LINE * (this.head(width).length + this.names.length) + 24;
  }

  height(width: number): number {
    return this.top(width) + TALL + AXIS_HEIGHT;
  }

  protected paint(renderer: Renderer, width: number): Item[] {
    const { labels, series, curve, stacked } = this.meta;
    this.head(width).forEach((text, i) => renderer.text(text, 0, 8 + LINE * i));
    const first = LINE * this.head(width).length;
    this.names.forEach(({ name, colour }, i) => {
      renderer.rects([0, first + LINE * i + 3, 11, 11], colour);
      renderer.text(fitted(name, 11, width - 20), 17, first + LINE * i + 8, { size: 11 });
    });
    const top = this.top(width);
    const sums = labels.map((_, c) => stacked
      ? [series.reduce((sum, { values }) => sum + (values[c] ?? 0), 0)]
      : series.map(({ values }) => values[c] ?? 0));
    const values = [...sums.flat(), ...(curve?.values ?? [])];
    // Where nothing differs from 0, rounding errors must not fill the axis.
    const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
    const flat = most - least < SMALLEST;
    const y = linear(flat ? [0, 1] : [least, most], [top + TALL, top]).nice(4);
    leftAxis(renderer, y, LEFT, width - RIGHT, this.meta.y);
    const pitch = (width - LEFT - RIGHT) / labels.length;
    const items = labels.map((label, c) => this.column(renderer, label, c, LEFT + c * pitch, pitch, y));
    if (curve) {
      const x = (c: number): number => LEFT + (c + 0.5) * pitch;
      const line = curve.values.slice(1).flatMap((value, c) => [
        x(c), y(curve.values[c] ?? 0), x(c + 1), y(value),
      ]);
      renderer.lines(line, INK, 1.4);
    }
    renderer.lines([LEFT, y(0), width - RIGHT, y(0)], MUTED, 1);
    this.labels(renderer, width, pitch, top + TALL);
    return items;
  }

  private column(
    renderer: Renderer, label: string, c: number, x: number, pitch: number, y: (value: number) => number,
  ): Item {
    const { series, stacked, unit } = this.meta;
    const wide = Math.max(pitch * 0.84, 1);
    const each = stacked ? wide : wide / series.length;
    let below = 0;
    let highest = y(0);
    let lowest = y(0);
    series.forEach(({ values, colour }, s) => {
      const value = values[c] ?? 0;
      const [from, to] = stacked ? [below, below + value] : [0, value];
      const [up, down] = [Math.min(y(from), y(to)), Math.max(y(from), y(to))];
      const left = x + (pitch - wide) / 2 + (stacked ? 0 : s * each);
      if (down > up) renderer.rects([left, up, each * (stacked ? 1 : 0.94), down - up], colour);
      [highest, lowest] = [Math.min(highest, up), Math.max(lowest, down)];
      below += value;
    });
    const say = (value: number): string => `${Number(value.toPrecision(4)).toLocaleString("en-GB")} ${unit}`;
    const facts = series.map(({ name, values }) =>
      series.length > 1 ? `${name}: ${say(values[c] ?? 0)}` : say(values[c] ?? 0));
    const box: [number, number, number, number] = [
      x + (pitch - wide) / 2, highest, wide, Math.max(lowest - highest, 1),
    ];
    return { box, facts: [`${this.meta.x}: ${label}`, ...facts] };
  }

  /** Labels of the classes or of their edges, as many as fit side by side. */
  private labels(renderer: Renderer, width: number, pitch: number, bottom: number): void {
    const { labels, edges, x } = this.meta;
    const texts = edges ?? labels;
    const widest = Math.max(...texts.map((text) => textWidth(text, TICK_SIZE))) + 8;
    let step = 1;
    while (step * pitch < widest && step < texts.length) step *= 2;
    // Edges on both sides of zero are labelled symmetrically.
    const first = Math.max(texts.indexOf("0"), 0) % step;
    for (let c = first; c < texts.length; c += step) {
      const at = LEFT + (edges ? c : c + 0.5) * pitch;
      if (edges) renderer.lines([at, bottom, at, bottom + 4], MUTED, 0.8);
      const half = textWidth(texts[c] ?? "", TICK_SIZE) / 2;
      const align = at + half > width ? "end" : "middle";
      const place = align === "end" ? width : at;
      renderer.text(texts[c] ?? "", place, bottom + 12, { size: TICK_SIZE, align, colour: MUTED });
    }
    const span = width - LEFT - RIGHT;
    renderer.text(fitted(x, 11.5, span), LEFT + span / 2, bottom + 28, { size: 11.5, align: "middle" });
  }
}
