/** The entry of the prebuilt extension. */

import { offerPlugin } from "../hosts/federation.ts";
import { pluginOf } from "./plugin.ts";

offerPlugin("onnx-nb", pluginOf);
