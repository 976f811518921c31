// A canvas that redraws itself sharply at its size and keeps its picture under a light overlay.

import type { Renderer } from "./renderer";
import { CanvasRenderer, SvgRenderer } from "./renderer";

export interface Drawing {
  /** Height in CSS pixels that the drawing wants at a width. */
  height(width: number): number;
  draw(renderer: Renderer, width: number, height: number): void;
  overlay(renderer: Renderer): void;
}

/** How long nothing must have changed before plots out of sight are drawn again. */
const REST_MS = 45;
/** Plots this near to the window count as in sight. */
const NEAR = "200px";
/** Width of A4 between its margins and those of the page, in CSS pixels; dots to each. */
const PAPER = { width: 660, density: 2 };

/**
 * While a pointer is held, a plot that takes longer to draw than a frame leaves room for (ms) is
 * drawn in one of so many frames' time: what is dragged keeps up, and the plot follows it.
 */
const COSTLY = { ms: 5, pause: 6 };

/** Plots out of sight that wait to be drawn. */
const late = new Set<() => void>();
let rest = 0;
/** Whether a pointer is held down: what it drags has not come to rest. */
let held = false;

/** Whether a pointer is held down, so that what it drags goes on changing. */
export const pointerHeld = (): boolean => held;

/** Draw a plot out of sight when choices rest: while time is dragged only what is seen is drawn. */
function atRest(paint: () => void): void {
  late.add(paint);
  waitForRest();
}

function waitForRest(): void {
  window.clearTimeout(rest);
  if (held) return;
  rest = window.setTimeout(() => {
    const paints = [...late];
    late.clear();
    for (const each of paints) each();
  }, REST_MS);
}

window.addEventListener("pointerdown", () => (held = true), true);
for (const end of ["pointerup", "pointercancel"]) {
  window.addEventListener(end, () => {
    held = false;
    waitForRest();
  }, true);
}

export class Surface {
  private readonly base = document.createElement("canvas");
  private stale = true;
  private waiting = false;
  private inSight = true;
  /** How long the last full drawing took, and when it was over. */
  private cost = 0;
  private drawnAt = 0;
  private readonly paintLate = (): void => this.paint();
  width = 0;
  heightPx = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly drawing: Drawing,
  ) {
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement ?? canvas);
    new IntersectionObserver((seen) => {
      this.inSight = seen[seen.length - 1]?.isIntersecting ?? true;
      if (this.inSight && late.delete(this.paintLate)) this.paint();
    }, { rootMargin: NEAR }).observe(canvas);
  }

  /** Draw everything again at the next frame. */
  redraw(): void {
    this.stale = true;
    this.refresh();
  }

  /** Draw the overlay again at the next frame. */
  refresh(): void {
    // The first picture has its size only when it is drawn, and what is below it its place.
    if (!this.inSight && this.width > 0) {
      atRest(this.paintLate);
      return;
    }
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.tooSoon()) this.paint();
    });
  }

  /** Put off a costly drawing while a pointer is held; it is done later, and at last on release. */
  private tooSoon(): boolean {
    const rested = performance.now() - this.drawnAt;
    if (!held || !this.stale || this.cost < COSTLY.ms || rested > COSTLY.pause * this.cost) return false;
    atRest(this.paintLate);
    return true;
  }

  /** Draw at once as wide as paper is: a page that is printed waits for no frame. */
  forPaper(): void {
    this.stale = true;
    this.paint(PAPER.width, PAPER.density);
  }

  svg(): string {
    const renderer = new SvgRenderer(this.width, this.heightPx);
    this.drawing.draw(renderer, this.width, this.heightPx);
    this.drawing.overlay(renderer);
    return renderer.toString();
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
    const renderer = new CanvasRenderer(on);
    this.drawing.draw(renderer, this.width, this.heightPx);
    this.drawing.overlay(renderer);
    return out;
  }

  private paint(
    width = Math.floor((this.canvas.parentElement ?? this.canvas).clientWidth),
    density = Math.min(window.devicePixelRatio || 1, 3),
  ): void {
    if (width < 50) return;
    const height = Math.ceil(this.drawing.height(width));
    const [wide, tall] = [Math.floor(width * density), Math.floor(height * density)];
    if (this.canvas.width !== wide || this.canvas.height !== tall || this.width !== width) {
      this.width = width;
      this.heightPx = height;
      this.base.width = this.canvas.width = wide;
      this.base.height = this.canvas.height = tall;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
      this.stale = true;
    }
    const drew = this.stale;
    if (this.stale) {
      const on = this.base.getContext("2d");
      if (!on) return;
      this.stale = false;
      const began = performance.now();
      on.reset();
      on.scale(density, density);
      on.fillStyle = "#fff";
      on.fillRect(0, 0, width, height);
      this.drawing.draw(new CanvasRenderer(on), width, height);
      this.cost = performance.now() - began;
    }
    const ctx = this.canvas.getContext("2d");
    if (!ctx) return;
    const began = performance.now();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.base, 0, 0);
    // The browser draws what it was told only when the picture is used.
    if (drew) {
      this.drawnAt = performance.now();
      this.cost += this.drawnAt - began;
    }
    ctx.scale(density, density);
    this.drawing.overlay(new CanvasRenderer(ctx));
  }
}

/** Position of a pointer on a canvas, in CSS pixels. */
export function pointer(event: MouseEvent, canvas: HTMLCanvasElement): [number, number] {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
