/** The stylesheet of two graphs side by side. */

import pair from "./pair.css";
import simplification from "./simplification.css";
import table from "./table.css";
import { css as view } from "./view.ts";

export const css = [view, pair, table, simplification].join("");
