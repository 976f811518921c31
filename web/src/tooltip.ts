// Tooltips: text beside the pointer about what is under it, the same in every plot.

import { pointer } from "./surface";

/** Lines of text about a position in a plot; null for none. */
export type Facts = (x: number, y: number) => string[] | null;

export class Tip {
  private readonly box: HTMLElement;

  constructor(private readonly canvas: HTMLCanvasElement, facts: Facts) {
    this.box = document.createElement("div");
    this.box.className = "tip";
    this.box.id = `${canvas.id}-tip`;
    this.box.hidden = true;
    canvas.parentElement?.append(this.box);
    let waiting: [number, number] | null = null;
    canvas.addEventListener("pointermove", (event) => {
      const first = waiting === null;
      waiting = pointer(event, canvas);
      if (!first) return;
      requestAnimationFrame(() => {
        const at = waiting;
        waiting = null;
        if (at) this.show(facts(...at), ...at);
      });
    });
    canvas.addEventListener("pointerleave", () => {
      waiting = null;
      this.box.hidden = true;
    });
    canvas.addEventListener("blur", () => (this.box.hidden = true));
  }

  /** Show lines at a position; hide the tooltip if there are none. */
  show(lines: string[] | null, x: number, y: number): void {
    this.box.hidden = lines === null;
    if (!lines) return;
    this.box.textContent = lines.join("\n");
    // To the left of the pointer where there is no room to its right.
    const room = this.canvas.clientWidth;
    const left = x + this.box.offsetWidth + 14 > room ? x - this.box.offsetWidth - 10 : x + 14;
    this.box.style.translate = `${Math.max(left, 0)}px ${y + 14}px`;
  }
}
