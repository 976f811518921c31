// Saving figures as files: SVG from the same drawing code, PNG at twice the size.

import { save } from "./controls";
import type { Surface } from "./surface";

/** Two buttons below a plot to save it. */
export function connectSaving(surface: Surface, file: string): void {
  const { canvas } = surface;
  const bar = canvas.closest("figure")?.querySelector("figcaption");
  if (!bar) return;
  const group = document.createElement("span");
  group.className = "save";
  const add = (id: string, form: string, act: () => void): void => {
    const button = document.createElement("button");
    button.type = "button";
    button.id = id;
    button.textContent = form;
    button.setAttribute("aria-label", `Save ${file} as ${form}`);
    button.addEventListener("click", act);
    group.append(button);
  };
  add(`save-${canvas.id}`, "SVG", () => save(`${file}.svg`, surface.svg(), "image/svg+xml"));
  add(`save-${canvas.id}-png`, "PNG", () => {
    surface.raster(2).toBlob((blob) => blob && save(`${file}.png`, blob, "image/png"), "image/png");
  });
  bar.append(group);
}
