// What the reader has chosen; every view listens and redraws.

import type { Quantity } from "./data";

export interface Choice {
  dataset: number;
  selection: number;
  quantity: Quantity;
  link: number;
}

type Listener = (choice: Choice, changed: ReadonlySet<keyof Choice>) => void;

export class Store {
  private readonly listeners: Listener[] = [];
  private choice: Choice = { dataset: 0, selection: 0, quantity: "congestion", link: -1 };

  get now(): Readonly<Choice> {
    return this.choice;
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(change: Partial<Choice>): void {
    const next = { ...this.choice, ...change };
    const keys = Object.keys(change) as (keyof Choice)[];
    const changed = new Set(keys.filter((key) => next[key] !== this.choice[key]));
    if (changed.size === 0) return;
    this.choice = next;
    for (const listener of this.listeners) listener(next, changed);
  }
}
