/** The stylesheet of the panels of results: the parts in the order in which they override each other. */

import bar from "./bar.css";
import base from "./base.css";
import comparison from "./comparison.css";
import external from "./external.css";
import inspector from "./inspector.css";
import table from "./table.css";
import values from "./values.css";

export const css = [base, bar, inspector, values, table, external, comparison].join("");
