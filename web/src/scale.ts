// Colour scales: the tables are in the report, so that printed and on-screen figures agree.

import type { Model, Quantity, Scale } from "./data";
import type { Renderer } from "./renderer";
import { MUTED, textWidth, wrapped } from "./renderer";

/** An odd number, so that the middle shade means no change. */
export const SHADES = 65;

export const TITLES: Record<Quantity, string> = {
  congestion: "congested fraction (0–1)",
  utilization: "utilization by our packets: share of the line rate (0–1)",
  stall: "stall fraction: had data but no credit (0–1)",
};

export const CHANGES: Record<Quantity, string> = {
  congestion: "change of the congested fraction (−1 to 1); dot: less than before",
  utilization: "change of the utilization by our packets (−1 to 1); dot: less than before",
  stall: "change of the stall fraction (−1 to 1); dot: less than before",
};

/** Left, top, width and height. */
export type Rect = [number, number, number, number];

/** The dot in a cell with less than before; nothing in other cells or if the cell is too small. */
export function dot([x, y, w, h]: Rect, change: number): Rect | [] {
  // Colour must not be the only sign of a decrease.
  if (!(change < -0.05) || w < 4 || h < 4) return [];
  return [x + w / 2 - 1, y + h / 2 - 1, 2, 2];
}

/** Shades of a scale from its lower end to its upper end. */
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

const BAR = 260;
const LINE = 15;
const MARK = 24;

/** Legend below a plot: its scale, the meaning of hatched cells (if there are any), and a note. */
export interface Legend {
  title: string;
  noData?: string;
  /** Meaning of stripes over a colour. */
  uncertain?: string;
  note?: string;
}

/** Lines of a legend at a width: the text is beside the scale if there is room. */
function arranged({ title, noData = "", uncertain = "", note = "" }: Legend, room: number): {
  beside: boolean;
  titles: string[];
  blanks: string[];
  uncertainties: string[];
  notes: string[];
} {
  const widest = Math.max(textWidth(title, 12), noData ? MARK + textWidth(noData, 11) : 0);
  const beside = BAR + 12 + widest <= room;
  return {
    beside,
    titles: beside ? [title] : wrapped(title, 12, room),
    blanks: noData ? (beside ? [noData] : wrapped(noData, 11, room - MARK)) : [],
    uncertainties: uncertain ? wrapped(uncertain, 11, room - MARK) : [],
    notes: note ? wrapped(note, 12, room) : [],
  };
}

/** Height of a legend at a width, both in CSS pixels. */
export function legendHeight(words: Legend, room: number): number {
  const { beside, titles, blanks, uncertainties, notes } = arranged(words, room);
  return 36 + LINE * (notes.length + uncertainties.length + (beside ? 0 : titles.length + blanks.length));
}

/** Draw a legend at a width: the scale with its unit, and the meaning of the plot's marks. */
export function legend(
  renderer: Renderer,
  colours: string[],
  x: number,
  y: number,
  room: number,
  words: Legend,
  ticks: readonly (number | string)[] = [0, 0.5, 1],
): void {
  const { beside, titles, blanks, uncertainties, notes } = arranged(words, room);
  const width = Math.min(BAR, room);
  const step = width / colours.length;
  colours.forEach((colour, i) => renderer.rects([x + i * step, y, step + 0.5, 10], colour));
  ticks.forEach((tick, i) => {
    const align = (["start", "middle", "end"] as const)[i] ?? "middle";
    const text = String(tick).replace("-", "−");
    renderer.text(text, x + (i * width) / 2, y + 19, { size: 11, colour: MUTED, align });
  });
  const left = beside ? x + width + 12 : x;
  let at = beside ? y + 5 : y + 36;
  for (const line of titles) {
    renderer.text(line, left, at, { size: 12 });
    at += LINE;
  }
  if (beside) at = y + 19;
  if (blanks.length) renderer.rects([left, at - 5, 18, 10], "hatch");
  for (const line of blanks) {
    renderer.text(line, left + MARK, at, { size: 11, colour: MUTED });
    at += LINE;
  }
  if (beside) at = y + 42;
  if (uncertainties.length) {
    renderer.rects([x, at - 5, 18, 10], colours[Math.floor(0.6 * colours.length)] ?? "#888");
    renderer.rects([x, at - 5, 18, 10], "uncertain");
  }
  for (const line of uncertainties) {
    renderer.text(line, x + MARK, at, { size: 11, colour: MUTED });
    at += LINE;
  }
  for (const line of notes) {
    renderer.text(line, x, at, { size: 12 });
    at += LINE;
  }
}

/** Half of a 95 % interval above which a value is drawn as uncertain. */
export const WIDE_INTERVAL = 0.2;
export const UNCERTAIN_WORDS = "striped or pale: 95 % interval wider than ±20 points";

/** Ticks of the scale of differences. */
export const CHANGE_TICKS = [-1, 0, 1] as const;
