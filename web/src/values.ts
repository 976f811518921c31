// Values of all links that a view shows: of a run or of a difference; whole run, phase or time span.

import type { Model, Quantity, View } from "./data";
import { fraction, share } from "./data";
import { shades, SHADES } from "./scale";
import type { Store } from "./state";

export class LinkValues {
  constructor(
    private readonly model: Model,
    private readonly store: Store,
  ) {}

  /** Whether the difference of two runs is selected. */
  get change(): boolean {
    return this.store.now.dataset === this.model.changeIndex;
  }

  /** The selected run, or both runs of a difference; null for a run without the phase. */
  views(): (View | null)[] {
    const { dataset, selection, time } = this.store.now;
    const phase = this.model.phases(dataset)[selection] ?? null;
    return this.model.runsOf(dataset).map((run) => this.model.view(run, phase, time));
  }

  /** Value of a link: 0 to 1, for a difference −1 to 1; NaN for no data. */
  value(link: number, quantity: Quantity = "congestion"): number {
    return this.values(quantity)(link);
  }

  /** The same as a function: faster for many links. */
  values(quantity: Quantity): (link: number) => number {
    if (quantity === "stall") {
      const [before, after] = this.stalls();
      if (!before) return () => NaN;
      return after ? (link) => after(link) - before(link) : before;
    }
    const pick = quantity === "congestion" ? fraction : utilization;
    const views = this.views();
    const [first = null, second = null] = views;
    if (views.length === 1) return first ? (link) => pick(first, link) : () => NaN;
    const one = (view: View | null, other: View | null, link: number): number => {
      const value = view ? pick(view, link) : NaN;
      return Number.isNaN(value) && isUnused(view, other, link) ? 0 : value;
    };
    return (link) => one(second, first, link) - one(first, second, link);
  }

  /** Half the width of a link's 95 % interval, 0–1; 0 where there is no estimate. */
  halfIntervals(): (link: number) => number {
    const views = this.views();
    return (link) => {
      let most = 0;
      for (const view of views) {
        const error = view?.estimates(link).error[link] ?? NaN;
        if (error > most) most = error;
      }
      return 1.96 * most;
    };
  }

  private stalls(): ((link: number) => number)[] {
    return this.model.runsOf(this.store.now.dataset).flatMap((run) => {
      const { truth } = this.model.run(run);
      const stall = truth ? this.model.arrays.get(truth.stall) : null;
      return stall ? [(link: number) => share(stall, link)] : [];
    });
  }

  /** Packets through a link; for a difference, those of the run with more. */
  weights(): (link: number) => number {
    const views = this.views();
    return (link) => {
      let most = 0;
      for (const view of views) most = Math.max(most, view?.weight[link] ?? 0);
      return most;
    };
  }

  colours(quantity: Quantity): string[] {
    return shades(this.model, this.change ? "change" : quantity);
  }

  /** Shade of a value; for a difference, zero is in the middle. */
  shade(value: number): number {
    const at = this.change ? (value + 1) / 2 : value;
    return Math.round(Math.min(Math.max(at, 0), 1) * (SHADES - 1));
  }
}

export const utilization = (view: View, link: number): number => view.utilization(link);

/** A link counts as unused below this share of the other run's packets. */
const UNUSED_SHARE = 0.05;

/** Whether a run does not use a link that the other uses: then it has no congestion there. */
export function isUnused(view: View | null, other: View | null, link: number): boolean {
  const theirs = other?.weight[link] ?? 0;
  return theirs > 0 && (view?.weight[link] ?? 0) <= UNUSED_SHARE * theirs;
}
