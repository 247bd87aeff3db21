import { defineConfig } from "vitest/config";

// two cores may be busy
export default defineConfig({ test: { testTimeout: 60_000 } });
