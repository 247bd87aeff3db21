/**
 * The output of a cell around an element.
 *
 * Used: class names of JupyterLab's output area. Tried with JupyterLab 4.6.6. If they change, an empty line stays where
 * the hidden output was.
 */

/** Returns the selector of the output itself that matches, not of one around it: an ipywidgets.Output holds outputs. */
export function outputWith(selector: string): string {
  return `.jp-OutputArea-child:has(> .jp-OutputArea-output > ${selector})`;
}
