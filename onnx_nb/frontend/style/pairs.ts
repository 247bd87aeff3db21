/** The stylesheet of two graphs side by side: that of one, and what goes over it. */

import { css as graph } from "./graph.ts";
import pair from "./pair.css";
import simplification from "./simplification.css";
import table from "./table.css";

export const css = [graph, pair, table, simplification].join("");
