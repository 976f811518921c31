// Axes: scales and ticks from d3, drawn with the same renderer as the plots.

import { scaleLinear } from "d3-scale";
import type { ScaleLinear } from "d3-scale";
import type { Renderer } from "./renderer";
import { fitted, MUTED, textWidth } from "./renderer";

export type Scale = ScaleLinear<number, number>;
export const TICK_SIZE = 11;
const GRID = "#e3e7ec";

const TIMES: readonly [string, number][] = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3], ["ps", 1]];

/** Most readable unit for a time in picoseconds. */
export function timeUnit(ps: number): readonly [string, number] {
  return TIMES.find(([, size]) => Math.abs(ps) >= size) ?? ["ps", 1];
}

/** Picoseconds as text with a suitable unit. */
export function timeText(ps: number): string {
  if (ps === 0) return "0";
  const [unit, size] = timeUnit(ps);
  return `${Number((ps / size).toPrecision(3))} ${unit}`;
}

const plain = (text: string): string => text.replace("-", "−");

/** A scale in the data's own unit; its ticks are whole numbers of the unit shown. */
export function linear(domain: [number, number], range: [number, number]): Scale {
  const [from, to] = domain;
  return scaleLinear().domain(from === to ? [from, from + 1] : domain).range(range);
}

export interface Ticks {
  at: number[];
  texts: string[];
}

/** Ticks in a unit of ``size``, as many as fit side by side with their labels. */
export function ticksOf(scale: Scale, size = 1, suffix = ""): Ticks {
  const [from = 0, to = 1] = scale.domain();
  const [left = 0, right = 1] = scale.range();
  const shown = scaleLinear().domain([from / size, to / size]);
  for (let wanted = 8; wanted > 1; wanted--) {
    const values = shown.ticks(wanted);
    const format = shown.tickFormat(wanted);
    const texts = values.map((value) => plain(format(value)) + suffix);
    const widest = Math.max(0, ...texts.map((text) => textWidth(text, TICK_SIZE)));
    const pitch = Math.abs(right - left) / Math.max(values.length - 1, 1);
    if (widest + 10 <= pitch) return { at: values.map((value) => value * size), texts };
  }
  return { at: [from, to], texts: [from, to].map((v) => plain(String(Number((v / size).toPrecision(3))))) };
}

/** An axis below a plot: ticks with labels, and a title below, truncated if necessary. */
export function bottomAxis(
  renderer: Renderer, scale: Scale, ticks: Ticks, y: number, title: string, grid?: number,
): void {
  const [left = 0, right = 1] = scale.range();
  const marks = ticks.at.flatMap((at) => [scale(at), y, scale(at), y + 4]);
  if (grid !== undefined) renderer.lines(ticks.at.flatMap((at) => [scale(at), grid, scale(at), y]), GRID, 1);
  renderer.lines([left, y, right, y, ...marks], MUTED, 0.8);
  ticks.at.forEach((at, i) => {
    const text = ticks.texts[i] ?? "";
    // Keep the first and last label inside the plot.
    const half = textWidth(text, TICK_SIZE) / 2;
    const align = scale(at) + half > right + 12 ? "end" : "middle";
    renderer.text(text, align === "end" ? right + 10 : scale(at), y + 12, { size: TICK_SIZE, align, colour: MUTED });
  });
  const span = right - left;
  if (title) {
    // A title that is wider than its axis begins left of it.
    const inside = textWidth(title, 11.5) <= span;
    const at = inside ? left + span / 2 : left + span;
    const align = inside ? "middle" : "end";
    renderer.text(fitted(title, 11.5, inside ? span : at), at, y + 28, { size: 11.5, align });
  }
}

/** An axis at the left of a plot, with grid lines. */
export function leftAxis(renderer: Renderer, scale: Scale, x: number, right: number, title: string, count = 4): void {
  const values = scale.ticks(count);
  const format = scale.tickFormat(count);
  renderer.lines(values.flatMap((at) => [x, scale(at), right, scale(at)]), GRID, 1);
  for (const at of values) {
    renderer.text(plain(format(at)), x - 6, scale(at), { size: TICK_SIZE, align: "end", colour: MUTED });
  }
  const top = Math.min(...scale.range());
  if (title) renderer.text(title, 0, top - 14, { size: 11.5 });
}

/** Height of the ticks and the title below a plot. */
export const AXIS_HEIGHT = 38;
