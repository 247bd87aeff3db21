/** The stylesheet of a graph, from which submodels are extracted. */

import extract from "./extract.css";
import beside from "./submodelpane.css";
import { css as view } from "./view.ts";

export const css = [view, extract, beside].join("");
