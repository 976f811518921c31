// Colour scales: the tables come with the report, so paper and screen agree.

import type { Model, Quantity } from "./data";
import type { Pen } from "./pen";
import { MUTED } from "./pen";

export const SHADES = 64;

export const TITLES: Record<Quantity, string> = {
  congestion: "congested fraction (0–1)",
  utilization: "utilization by our packets: share of the line rate (0–1)",
  stall: "stall fraction: had data but no credit (0–1)",
};

/** Shades of one quantity from 0 to 1. */
export function shades(model: Model, quantity: Quantity): string[] {
  const rgb = model.arrays.get(model.payload.scales[quantity]);
  const last = rgb.length / 3 - 1;
  return Array.from({ length: SHADES }, (_, i) => {
    const at = 3 * Math.round((i * last) / (SHADES - 1));
    return (
      "#" + [0, 1, 2].map((c) => (rgb[at + c] ?? 0).toString(16).padStart(2, "0")).join("")
    );
  });
}

export const shadeOf = (value: number): number =>
  Math.round(Math.min(Math.max(value, 0), 1) * (SHADES - 1));

/** A legend: the scale with its unit, and what a hatched cell means. */
export function legend(
  pen: Pen,
  colours: string[],
  x: number,
  y: number,
  title: string,
  noData: string,
): void {
  const width = 260;
  const step = width / SHADES;
  colours.forEach((colour, i) => pen.rects([x + i * step, y, step + 0.5, 10], colour));
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    const align = tick === 0 ? "start" : tick === 1 ? "end" : "middle";
    pen.text(String(tick), x + tick * width, y + 19, { size: 11, colour: MUTED, align });
  }
  pen.text(title, x + width + 12, y + 5, { size: 12 });
  pen.rects([x + width + 12, y + 14, 18, 10], "hatch");
  pen.text(noData, x + width + 36, y + 19, { size: 11, colour: MUTED });
}
