// A canvas that redraws itself at its size and pixel density, with a cached drawing below an overlay.

import type { Renderer } from "./renderer";
import { CanvasRenderer, SvgRenderer } from "./renderer";

export interface Drawing {
  /** Height in CSS pixels that the drawing needs at a given width. */
  height(width: number): number;
  draw(renderer: Renderer, width: number, height: number): void;
  overlay(renderer: Renderer): void;
}

/** Time without changes after which off-screen plots are redrawn. */
const IDLE_MS = 45;
/** Plots this close to the window count as visible. */
const MARGIN = "200px";
/** Printable width of A4 in CSS pixels, that of one of two columns, and pixels drawn for each. */
const PAPER = { width: 660, column: 310, density: 2 };

/**
 * Throttling during a drag: a plot that takes at least ``ms`` to draw is redrawn only after
 * ``pause`` times as long, so that the dragged element itself stays responsive.
 */
const THROTTLE = { ms: 5, pause: 6 };

/** Plots whose drawing is deferred. */
const deferred = new Set<() => void>();
let idleTimer = 0;
let pointerDown = false;

/** Whether a pointer button is down: during a drag the selection keeps changing. */
export const pointerHeld = (): boolean => pointerDown;

/** Draw a plot once the selection is stable: during a drag only visible plots are drawn. */
function whenIdle(paint: () => void): void {
  deferred.add(paint);
  waitUntilIdle();
}

function waitUntilIdle(): void {
  window.clearTimeout(idleTimer);
  if (pointerDown) return;
  idleTimer = window.setTimeout(() => {
    const paints = [...deferred];
    deferred.clear();
    for (const each of paints) each();
  }, IDLE_MS);
}

window.addEventListener("pointerdown", () => (pointerDown = true), true);
for (const end of ["pointerup", "pointercancel"]) {
  window.addEventListener(end, () => {
    pointerDown = false;
    waitUntilIdle();
  }, true);
}

export class Surface {
  private readonly base = document.createElement("canvas");
  private stale = true;
  private waiting = false;
  private visible = true;
  /** Duration of the last full drawing, and when it ended. */
  private drawMs = 0;
  private drawnAt = 0;
  private readonly paintDeferred = (): void => this.paint();
  width = 0;
  heightPx = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly drawing: Drawing,
  ) {
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement ?? canvas);
    new IntersectionObserver((seen) => {
      this.visible = seen[seen.length - 1]?.isIntersecting ?? true;
      if (this.visible && deferred.delete(this.paintDeferred)) this.paint();
    }, { rootMargin: MARGIN }).observe(canvas);
  }

  /** Redraw everything at the next frame. */
  redraw(): void {
    this.stale = true;
    this.refresh();
  }

  /** Redraw the overlay at the next frame. */
  refresh(): void {
    // The first drawing is never deferred: it sets the height of the canvas and thus the layout.
    if (!this.visible && this.width > 0) {
      whenIdle(this.paintDeferred);
      return;
    }
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.tooSoon()) this.paint();
    });
  }

  /** Defer a slow drawing during a drag; it is done later, at the latest when the pointer is released. */
  private tooSoon(): boolean {
    const since = performance.now() - this.drawnAt;
    const fast = this.drawMs < THROTTLE.ms || since > THROTTLE.pause * this.drawMs;
    if (!pointerDown || !this.stale || fast) return false;
    whenIdle(this.paintDeferred);
    return true;
  }

  /** Draw at once at the width of paper: printing does not wait for the next frame. */
  forPaper(): void {
    this.stale = true;
    const inColumns = this.canvas.closest(".thirds") !== null;
    this.paint(inColumns ? PAPER.column : PAPER.width, PAPER.density);
  }

  svg(): string {
    const renderer = new SvgRenderer(this.width, this.heightPx);
    this.drawing.draw(renderer, this.width, this.heightPx);
    this.drawing.overlay(renderer);
    return renderer.toString();
  }

  /** The drawing on a new canvas, enlarged by a factor. */
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
      this.drawMs = performance.now() - began;
    }
    const ctx = this.canvas.getContext("2d");
    if (!ctx) return;
    const began = performance.now();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.base, 0, 0);
    // Browsers rasterize lazily, when the canvas is read; so count this, too.
    if (drew) {
      this.drawnAt = performance.now();
      this.drawMs += this.drawnAt - began;
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
