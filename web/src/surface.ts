// A canvas that redraws itself sharply at its size and keeps its picture under a light overlay.

import type { Pen } from "./pen";
import { CanvasPen, SvgPen } from "./pen";

export interface Drawing {
  /** Height in CSS pixels that the drawing wants at a width. */
  height(width: number): number;
  draw(pen: Pen, width: number, height: number): void;
  overlay(pen: Pen): void;
}

export class Surface {
  private base: HTMLCanvasElement | null = null;
  private waiting = false;
  width = 0;
  heightPx = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly drawing: Drawing,
  ) {
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement ?? canvas);
  }

  /** Draw everything again at the next frame. */
  redraw(): void {
    this.base = null;
    this.refresh();
  }

  /** Draw the overlay again at the next frame. */
  refresh(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  /** Draw at once: a page that is printed waits for no frame. */
  now(): void {
    this.base = null;
    this.paint();
  }

  svg(): string {
    const pen = new SvgPen(this.width, this.heightPx);
    this.drawing.draw(pen, this.width, this.heightPx);
    this.drawing.overlay(pen);
    return pen.toString();
  }

  /** The picture on a canvas of its own, some times as large as it is shown. */
  raster(density: number): HTMLCanvasElement {
    const out = document.createElement("canvas");
    out.width = this.width * density;
    out.height = this.heightPx * density;
    const on = out.getContext("2d");
    if (!on) return out;
    on.scale(density, density);
    on.fillStyle = "#fff";
    on.fillRect(0, 0, this.width, this.heightPx);
    const pen = new CanvasPen(on);
    this.drawing.draw(pen, this.width, this.heightPx);
    this.drawing.overlay(pen);
    return out;
  }

  private paint(): void {
    const width = Math.floor((this.canvas.parentElement ?? this.canvas).clientWidth);
    if (width < 50) return;
    const height = Math.ceil(this.drawing.height(width));
    const density = Math.min(window.devicePixelRatio || 1, 3);
    if (!this.base || this.width !== width || this.heightPx !== height) {
      this.width = width;
      this.heightPx = height;
      this.base = document.createElement("canvas");
      this.base.width = this.canvas.width = width * density;
      this.base.height = this.canvas.height = height * density;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
      const on = this.base.getContext("2d");
      if (!on) return;
      on.scale(density, density);
      on.fillStyle = "#fff";
      on.fillRect(0, 0, width, height);
      this.drawing.draw(new CanvasPen(on), width, height);
    }
    const ctx = this.canvas.getContext("2d");
    if (!ctx) return;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.base, 0, 0);
    ctx.scale(density, density);
    this.drawing.overlay(new CanvasPen(ctx));
  }
}

/** Position of a pointer on a canvas, in CSS pixels. */
export function pointer(event: MouseEvent, canvas: HTMLCanvasElement): [number, number] {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
