// The current selection; every view listens to changes and redraws.

import type { Model, Quantity } from "./data";

export interface Choice {
  dataset: number;
  selection: number;
  quantity: Quantity;
  link: number;
  /** Hosts: the one at the end of the selected link, or sender and receiver of a pair of ranks. */
  nodes: readonly number[];
  /** Time span as its first frame and the frame after its last; null for the whole run. */
  time: readonly [number, number] | null;
}

export type Changed = ReadonlySet<keyof Choice>;
type Listener = (choice: Choice, changed: Changed) => void;

/** Fields whose change only redraws a view's overlay. */
const OVERLAY: readonly (keyof Choice)[] = ["link", "nodes"];

export const onlyMarks = (changed: Changed): boolean =>
  [...changed].every((key) => OVERLAY.includes(key));

/** The frame of the link timeline that the pointer is at; null for none. */
type PointListener = (frame: number | null) => void;

export class Store {
  private readonly pointers: PointListener[] = [];
  pointed: number | null = null;
  private readonly listeners: Listener[] = [];
  private choice: Choice = {
    dataset: 0, selection: 0, quantity: "congestion", link: -1, nodes: [], time: null,
  };

  get now(): Readonly<Choice> {
    return this.choice;
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  /** Called when the pointer moves over a timeline: hovering selects nothing. */
  listenPoint(listener: PointListener): void {
    this.pointers.push(listener);
  }

  point(frame: number | null): void {
    if (frame === this.pointed) return;
    this.pointed = frame;
    for (const listener of this.pointers) listener(frame);
  }

  set(change: Partial<Choice>): void {
    const next = { ...this.choice, ...change };
    const keys = Object.keys(change) as (keyof Choice)[];
    const same = (key: keyof Choice): boolean =>
      String(next[key]) === String(this.choice[key]);
    const changed = new Set(keys.filter((key) => !same(key)));
    if (changed.size === 0) return;
    this.choice = next;
    for (const listener of this.listeners) listener(next, changed);
  }

  /** Select a link, and with it the host at its end; -1 for none. */
  choose(model: Model, link: number): void {
    const ends = link < 0 ? [] : [model.src[link] ?? 0, model.dst[link] ?? 0];
    this.set({ link, nodes: ends.filter((vertex) => vertex < model.nodeCount) });
  }

  /** Select hosts, and with them the link into the last one. */
  chooseNodes(model: Model, nodes: readonly number[]): void {
    const last = nodes[nodes.length - 1];
    const link = last === undefined ? -1 : (model.ejection[last] ?? -1);
    this.set({ nodes: [...nodes], link });
  }
}
