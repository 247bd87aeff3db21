/** The stylesheet of a graph, from which submodels are extracted. */

import beside from "./beside.css";
import extract from "./extract.css";
import { css as view } from "./view.ts";

export const css = [view, extract, beside].join("");
