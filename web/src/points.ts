// Estimates against the truth, each with its interval.

import { AXIS_HEIGHT, bottomAxis, leftAxis, linear, ticksOf } from "./axis";
import type { Model, PointsMeta } from "./data";
import type { Item } from "./items";
import { ItemPlot } from "./items";
import type { Renderer } from "./renderer";
import { MUTED } from "./renderer";
import type { Store } from "./state";

const LEFT = 44;
const TOP = 24;
const RIGHT = 12;

export class Points extends ItemPlot {
  constructor(
    canvas: HTMLCanvasElement,
    private readonly model: Model,
    private readonly meta: PointsMeta,
    private readonly store: Store,
  ) {
    super(canvas);
  }

  private side(width: number): number {
    return Math.min(width - LEFT - RIGHT, 148);
  }

  height(width: number): number {
    return TOP + this.side(width) + AXIS_HEIGHT;
  }

  protected override chosen(item: number): void {
    const link = this.meta.link[item];
    if (link !== undefined) this.store.choose(this.model, link);
  }

  protected paint(renderer: Renderer, width: number): Item[] {
    const side = this.side(width);
    const x = linear([0, 1], [LEFT, LEFT + side]);
    const y = linear([0, 1], [TOP + side, TOP]);
    leftAxis(renderer, y, LEFT, LEFT + side, "estimated congested fraction, 95 % interval");
    bottomAxis(renderer, x, ticksOf(x), TOP + side, "true congested fraction (0–1)");
    renderer.lines([x(0), y(0), x(1), y(1)], MUTED, 1);
    const { link, low, high, colours } = this.meta;
    const whiskers = new Map<string, number[]>();
    const dots = new Map<string, number[]>();
    const items = link.map((number, i) => {
      const tier = this.model.payload.ways[this.model.group[number] ?? 0]?.[0] ?? 0;
      const colour = colours[tier % colours.length] ?? MUTED;
      const [px, py] = [x(this.meta.x[i] ?? 0), y(this.meta.y[i] ?? 0)];
      if (!whiskers.has(colour)) [whiskers, dots].forEach((map) => map.set(colour, []));
      whiskers.get(colour)!.push(px, y(low[i] ?? 0), px, y(high[i] ?? 0));
      dots.get(colour)!.push(px, py);
      const per = (value = NaN): string => (100 * value).toFixed(1);
      const facts = [
        this.model.linkName(number),
        `estimated ${per(this.meta.y[i])} % (95 %: ${per(low[i])} to ${per(high[i])} %)`,
        `truth ${per(this.meta.x[i])} %`,
      ];
      return { box: [px - 3, py - 3, 6, 6] as [number, number, number, number], facts };
    });
    whiskers.forEach((lines, colour) => renderer.lines(lines, colour, 0.5));
    dots.forEach((at, colour) => renderer.circles(at, 2.2, colour, colour));
    return items;
  }
}
