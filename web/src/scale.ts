// Colour scales: the tables come with the report, so paper and screen agree.

import type { Model, Quantity, Scale } from "./data";
import type { Pen } from "./pen";
import { MUTED } from "./pen";

export const SHADES = 64;

export const TITLES: Record<Quantity, string> = {
  congestion: "congested fraction (0–1)",
  utilization: "utilization by our packets: share of the line rate (0–1)",
  stall: "stall fraction: had data but no credit (0–1)",
};

export const CHANGES: Record<Quantity, string> = {
  congestion: "change of the congested fraction (−1 to 1)",
  utilization: "change of the utilization by our packets (−1 to 1)",
  stall: "change of the stall fraction (−1 to 1)",
};

/** Shades of one scale from its lower end to its upper. */
export function shades(model: Model, quantity: Scale): string[] {
  const rgb = model.arrays.get(model.payload.scales[quantity]);
  const last = rgb.length / 3 - 1;
  return Array.from({ length: SHADES }, (_, i) => {
    const at = 3 * Math.round((i * last) / (SHADES - 1));
    return (
      "#" + [0, 1, 2].map((c) => (rgb[at + c] ?? 0).toString(16).padStart(2, "0")).join("")
    );
  });
}

/** A legend: the scale with its unit, and what a hatched cell means, if there are any. */
export function legend(
  pen: Pen,
  colours: string[],
  x: number,
  y: number,
  title: string,
  noData: string,
  ticks: readonly (number | string)[] = [0, 0.5, 1],
): void {
  const width = 260;
  const step = width / SHADES;
  colours.forEach((colour, i) => pen.rects([x + i * step, y, step + 0.5, 10], colour));
  ticks.forEach((tick, i) => {
    const align = (["start", "middle", "end"] as const)[i] ?? "middle";
    const text = String(tick).replace("-", "−");
    pen.text(text, x + (i * width) / 2, y + 19, { size: 11, colour: MUTED, align });
  });
  pen.text(title, x + width + 12, y + 5, { size: 12 });
  if (!noData) return;
  pen.rects([x + width + 12, y + 14, 18, 10], "hatch");
  pen.text(noData, x + width + 36, y + 19, { size: 11, colour: MUTED });
}

/** Ends of the scale of differences. */
export const BOTH_WAYS = [-1, 0, 1] as const;
