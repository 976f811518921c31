// What a view shows of every link: one run, or two as a difference; the whole run, a phase, a time.

import type { Model, Quantity, View } from "./data";
import { fraction, share } from "./data";
import { shades, SHADES } from "./scale";
import type { Store } from "./state";

export class Lens {
  constructor(
    private readonly model: Model,
    private readonly store: Store,
  ) {}

  /** Whether the chosen run is the difference of two. */
  get change(): boolean {
    return this.store.now.dataset === this.model.changeIndex;
  }

  /** The chosen run, or both runs of a difference; null where a phase is not in a run. */
  views(): (View | null)[] {
    const { dataset, selection, time } = this.store.now;
    const phase = this.model.phases(dataset)[selection] ?? null;
    return this.model.runsOf(dataset).map((run) => this.model.view(run, phase, time));
  }

  /** Value of a link, 0–1, or of a difference −1 to 1; NaN for no data. */
  value(link: number, quantity: Quantity = "congestion"): number {
    const found = this.one(quantity).map((of) => of(link));
    return found.length === 1 ? (found[0] ?? NaN) : difference(found[0] ?? NaN, found[1] ?? NaN);
  }

  /** A function of the same, quicker for many links. */
  values(quantity: Quantity): (link: number) => number {
    const [before, after] = this.one(quantity);
    if (!before) return () => NaN;
    return after ? (link) => difference(before(link), after(link)) : before;
  }

  private one(quantity: Quantity): ((link: number) => number)[] {
    if (quantity === "stall") {
      return this.model.runsOf(this.store.now.dataset).map((run) => {
        const { truth } = this.model.run(run);
        const stall = truth ? this.model.arrays.get(truth.stall) : null;
        return (link) => (stall ? share(stall, link) : NaN);
      });
    }
    const pick = quantity === "congestion" ? fraction : utilization;
    return this.views().map((view) => (link) => (view ? pick(view, link) : NaN));
  }

  /** Packets through a link, of a difference in the run with more. */
  weight(link: number): number {
    return Math.max(...this.views().map((view) => view?.weight[link] ?? 0));
  }

  weights(): (link: number) => number {
    const views = this.views();
    return (link) => Math.max(...views.map((view) => view?.weight[link] ?? 0));
  }

  colours(quantity: Quantity): string[] {
    return shades(this.model, this.change ? "change" : quantity);
  }

  /** Shade of a value: of a difference zero is in the middle. */
  shade(value: number): number {
    const at = this.change ? (value + 1) / 2 : value;
    return Math.round(Math.min(Math.max(at, 0), 1) * (SHADES - 1));
  }
}

export const utilization = (view: View, link: number): number => view.utilization[link] ?? NaN;

/** After minus before; a run that has no data for a link had nothing there. */
export function difference(before: number, after: number): number {
  if (Number.isNaN(before) && Number.isNaN(after)) return NaN;
  return (Number.isNaN(after) ? 0 : after) - (Number.isNaN(before) ? 0 : before);
}
